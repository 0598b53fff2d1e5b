-- refresh: moves the end of live leases forward.
--
-- Promise: a lease that has ended stays ended, even when nobody has taken its place yet. Only
-- members that are named, and still there, are touched.
--
-- ARGV  1 lease    ms
--       2... units  every unit of every permit to refresh, a few hundred at most
-- Returns 1 when all are held, else for each unit 1 (held) or 0 (lost).

-- include keys.lua

local lease = tonumber(ARGV[1])
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = (micros - micros % 1000) / 1000

local ended = redis.call('ZREMRANGEBYSCORE', held, '-inf', now)
local ends, renewed = string.format('%.0f', now + lease), {}
for i = 2, #ARGV do
  renewed[2 * i - 3], renewed[2 * i - 2] = ends, ARGV[i]
end
local changed = redis.call('ZADD', held, 'XX', 'CH', unpack(renewed))
redis.call('PEXPIRE', held, lease * LEASES)
if ended == 0 and changed == #ARGV - 1 then
  return 1
end

-- include line.lua

if ended > 0 then
  advance(redis.call('ZCARD', held))
end
-- Some are lost, or were refreshed within this very millisecond.
local answer = {}
for i = 2, #ARGV do
  answer[#answer + 1] = redis.call('ZSCORE', held, ARGV[i]) and 1 or 0
end
return answer
