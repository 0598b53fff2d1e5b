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

local id, limit, weight, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local now, micros = clock()

-- The first write removes, because only then a server whose memory is full accepts the others.
redis.call('ZREMRANGEBYSCORE', held, '-inf', now)
local used = redis.call('ZCARD', held)
local head
if redis.call('EXISTS', line) == 1 then
  used, head = advance(used, now, micros)
end

local fits = used + weight <= limit and not head
if fits or redis.call('ZSCORE', held, id) then
  used = used + take(id, weight, now + lease, lease)
  return {1, draw(micros, lease), used}
end

local alive = tonumber(ARGV[5])
if alive == 0 then
  return {0, used}
end

local place = redis.call('ZSCORE', line, id)
if not place then
  local longest = tonumber(ARGV[6])
  if redis.call('ZCARD', line) >= longest then
    sweep(now)
    if redis.call('ZCARD', line) >= longest then
      return {3, 0}
    end
  end
  place = tonumber(ARGV[7])
  if place == 0 then
    place = draw(micros, lease)
  end
  redis.call('ZADD', line, string.format('%.0f', place), id)
end
redis.call('ZADD', beat, now + alive, id)
redis.call('PEXPIRE', line, ttl(lease))
redis.call('PEXPIRE', beat, ttl(lease))

local look = -1
if redis.call('ZRANGE', line, 0, 0)[1] == id then
  local first = redis.call('ZRANGE', held, 0, 0, 'WITHSCORES')
  look = first[2] and tonumber(first[2]) - now or 0
end
local last = tonumber(redis.call('GET', ticket) or micros)
return {2, tonumber(place), look, last}
