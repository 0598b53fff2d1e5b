-- release: gives units back.
--
-- Promise: only members that are named are touched, so a permit that was lost, and another's,
-- stay as they are.
--
-- KEYS  1 held    permit id -> lease end, ms of the server's clock
-- ARGV  1 ask     1: say which units were still held; 0: nobody wants to know
--       2... units  every unit of every permit to release, a few hundred at most
-- Returns for each unit 1 (it was held) or 0 (it was not) if asked, else how many there were.

local held, ask = KEYS[1], ARGV[1] == '1'

if not ask then
  return redis.call('ZREM', held, unpack(ARGV, 2))
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('ZREMRANGEBYSCORE', held, '-inf', now)
local answer = {}
for i = 2, #ARGV do
  answer[#answer + 1] = redis.call('ZREM', held, ARGV[i])
end
return answer
