-- refresh: moves the end of live leases forward.
--
-- Promise: a lease that has ended stays ended, even when nobody has taken its place yet. Only
-- members that are named, and still there, are touched.
--
-- ARGV  1 lease    ms
--       2... units  every unit of every permit to refresh, a few hundred at most
-- Returns 1 when all are held, else for each unit 1 (held) or 0 (lost).

local lease = tonumber(ARGV[1])
local now, micros = clock()

local ended = redis.call('ZREMRANGEBYSCORE', held, '-inf', now)
local renewed = {}
for i = 2, #ARGV do
  renewed[#renewed + 1] = now + lease
  renewed[#renewed + 1] = ARGV[i]
end
local changed = redis.call('ZADD', held, 'XX', 'CH', unpack(renewed))
redis.call('PEXPIRE', held, ttl(lease))
if ended > 0 then
  advance(redis.call('ZCARD', held), now, micros)
end
if changed == #ARGV - 1 then
  return 1
end

-- Some are lost, or were refreshed within this very millisecond.
local answer = {}
for i = 2, #ARGV do
  answer[#answer + 1] = redis.call('ZSCORE', held, ARGV[i]) and 1 or 0
end
return answer
