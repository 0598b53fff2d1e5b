-- acquire: takes the units of one permit if they fit under its limit and nobody waits before it;
-- else joins the line, if it may.
--
-- Promises: at any instant of the server's clock, at most `limit` units are held. The same id
-- counts once, however often it is sent, and keeps its place in the line. Every permit gets a
-- token greater than those before it.
--
-- ARGV  1 id       the permit's id
--       2 limit    units that may be held together
--       3 weight   units that this permit takes
--       4 lease    ms
--       5 alive    ms for which the owner counts as alive if it waits; 0: it does not wait
--       6 longest  how many may wait
--       7 place    the ticket that it was given before; 0: none
-- Returns {1, token, units held now}      it is granted
--         {0, units held now}             it is full
--         {2, ticket, ms, last}           it waits; it is the head if ms is not -1, and should
--                                         look again then, when the earliest lease ends. It holds
--                                         nothing, so no token up to the last is its any more
--         {3, 0}                          the line is full

-- include keys.lua

local id, limit, weight, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = (micros - micros % 1000) / 1000

-- The first write removes, because only then a server whose memory is full accepts the others.
redis.call('ZREMRANGEBYSCORE', held, '-inf', now)
local used = redis.call('ZCARD', held)
local waited_for = redis.call('EXISTS', line) == 1

-- As usual: one unit of a key for which nobody waits. The same as `take`, which see.
if weight == 1 and used < limit and not waited_for then
  local added = redis.call('ZADD', held, string.format('%.0f', now + lease), id)
  local token = redis.call('INCR', ticket)
  if token == 1 then
    token = micros
    redis.call('SET', ticket, string.format('%.0f', token), 'PX', lease * LEASES)
  elseif token % 4 == 0 then
    redis.call('PEXPIRE', ticket, lease * LEASES)
  end
  if used == 0 or token % 4 == 0 then
    redis.call('PEXPIRE', held, lease * LEASES)
  end
  return {1, token, used + added}
end

-- include line.lua

local head
if waited_for then
  used, head = advance(used)
end

local fits = used + weight <= limit and not head
if fits or redis.call('ZSCORE', held, id) then
  local token
  token, used = take(id, weight, used, now + lease, lease)
  return {1, token, used}
end

local alive = tonumber(ARGV[5])
if alive == 0 then
  return {0, used}
end

local place = redis.call('ZSCORE', line, id)
if not place then
  local longest = tonumber(ARGV[6])
  if redis.call('ZCARD', line) >= longest then
    sweep()
    if redis.call('ZCARD', line) >= longest then
      return {3, 0}
    end
  end
  place = tonumber(ARGV[7])
  if place == 0 then
    place = draw(lease)
  end
  redis.call('ZADD', line, text(place), id)
end
redis.call('ZADD', beat, text(now + alive), id)
redis.call('PEXPIRE', line, lease * LEASES)
redis.call('PEXPIRE', beat, lease * LEASES)

local look = -1
if redis.call('ZRANGE', line, 0, 0)[1] == id then
  local first = redis.call('ZRANGE', held, 0, 0, 'WITHSCORES')
  look = first[2] and tonumber(first[2]) - now or 0
end
local last = tonumber(redis.call('GET', ticket) or micros)
return {2, tonumber(place), look, last}
