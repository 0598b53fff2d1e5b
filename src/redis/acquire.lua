-- acquire: takes the units of one permit if they fit under its limit.
--
-- Promises: at any instant of the server's clock, at most `limit` units are held. The same id
-- counts once, however often it is sent. Every permit gets a token greater than those before it.
--
-- KEYS  1 held    permit id -> lease end, ms of the server's clock
--       2 ticket  the last token
-- ARGV  1 id      the permit's id; its further units are `id:2`, `id:3` and so on
--       2 limit   units that may be held together
--       3 weight  units that this permit takes
--       4 lease   ms
-- Returns {1, token, units held now} when it is granted, {0, units held now} when it is full.

local held, ticket = KEYS[1], KEYS[2]
local id, limit, weight, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
-- A few leases, so that no key outlives its use for long.
local ttl = lease * 4

local time = redis.call('TIME')
local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(micros / 1000)

-- The first write removes, because only then a server whose memory is full accepts the others.
redis.call('ZREMRANGEBYSCORE', held, '-inf', now)
local used = redis.call('ZCARD', held)
if used + weight > limit and not redis.call('ZSCORE', held, id) then
  return {0, used}
end

used = used + redis.call('ZADD', held, now + lease, id)
for unit = 2, weight do
  used = used + redis.call('ZADD', held, now + lease, id .. ':' .. unit)
end
redis.call('PEXPIRE', held, ttl)

-- A counter that expired goes on from the clock, which has counted more microseconds than permits.
local token = redis.call('INCR', ticket)
if token == 1 then
  token = micros
  redis.call('SET', ticket, string.format('%.0f', token), 'PX', ttl)
else
  redis.call('PEXPIRE', ticket, ttl)
end
return {1, token, used}
