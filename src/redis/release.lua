-- release: gives units back, or leaves the line, and lets the next in.
--
-- Promise: only members that are named are touched, so a permit that was lost, and another's,
-- stay as they are. What has become free is granted in the same step to those at the head of the
-- line, and nobody else is woken.
--
-- ARGV  1 ask      1: say which units were still held; 0: nobody wants to know
--       2... units  every unit of every permit to release, a few hundred at most
-- Returns for each unit 1 (it was held) or 0 (it was not) if asked, else how many there were.

-- include keys.lua

local ask, waited_for = ARGV[1] == '1', redis.call('EXISTS', line) == 1
if not ask and not waited_for then
  return redis.call('ZREM', held, unpack(ARGV, 2))
end

local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = (micros - micros % 1000) / 1000

-- include line.lua

redis.call('ZREMRANGEBYSCORE', held, '-inf', now)
local answer = {}
for i = 2, #ARGV do
  answer[#answer + 1] = redis.call('ZREM', held, ARGV[i])
end
if waited_for then
  redis.call('ZREM', line, unpack(ARGV, 2))
  redis.call('ZREM', beat, unpack(ARGV, 2))
  advance(redis.call('ZCARD', held))
end
return answer
