-- What the three scripts share: how units are taken, and how the line moves.
--
-- Every script has the same keys:
-- KEYS  1 held    unit of a permit -> lease end, ms of the server's clock
--       2 line    permit that waits -> ticket, its place
--       3 beat    permit that waits -> until when its owner counts as alive, ms
--       4 ticket  the last ticket
--
-- A permit's id tells all that is needed to grant it: PROCESS.SERIAL.LIMIT.WEIGHT.LEASE. Its
-- units are the id itself and, for those after the first, id:2, id:3 and so on.

local held, line, beat, ticket = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- The clock is read once, so that a script sees one instant.
local function clock()
  local time = redis.call('TIME')
  local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
  return math.floor(micros / 1000), micros
end

-- No key outlives its last use for longer than this.
local function ttl(lease)
  return lease * 4
end

-- The next ticket. A counter that has expired goes on from the clock, which has counted more
-- microseconds than there were tickets. So it does not matter when it expires, and it is enough
-- that its life is prolonged now and then.
local function draw(micros, lease)
  local drawn = redis.call('INCR', ticket)
  if drawn == 1 then
    drawn = micros
    redis.call('SET', ticket, string.format('%.0f', drawn), 'PX', ttl(lease))
  elseif drawn % 16 == 0 then
    redis.call('PEXPIRE', ticket, ttl(lease))
  end
  return drawn
end

-- Adds the units of a permit to those held, until `ends`. Returns how many of them are new.
local function take(id, weight, ends, lease)
  local added = redis.call('ZADD', held, ends, id)
  for unit = 2, weight do
    added = added + redis.call('ZADD', held, ends, id .. ':' .. unit)
  end
  redis.call('PEXPIRE', held, ttl(lease))
  return added
end

-- Tells one process that one of its permits was granted.
local function wake(process, serial, token)
  local prefix = string.match(held, '^[^{]*')
  redis.call('PUBLISH', prefix .. 'wake:' .. process, serial .. ' ' .. string.format('%.0f', token))
end

-- Grants to the head of the line while it fits, each under its own limit, and passes over those
-- who have died. Nobody behind the head is looked at, so no lighter claim starves a heavy one.
-- What is granted so ends when its owner ceases to count as alive, unless the owner takes it up by
-- a refresh: if it has just died, it holds the line up no longer than it would have as a waiter.
-- Returns how many units are held then, and the id of the head if one still waits.
local function advance(used, now, micros)
  while true do
    local id = redis.call('ZRANGE', line, 0, 0)[1]
    if not id then
      return used
    end
    local process, serial, limit, weight, lease =
      string.match(id, '^(%x+)%.(%x+)%.(%d+)%.(%d+)%.(%d+)$')
    weight, lease = tonumber(weight), tonumber(lease)
    local ends = process and tonumber(redis.call('ZSCORE', beat, id) or 0) or 0
    local alive = ends > now
    if alive and used + weight > tonumber(limit) then
      return used, id
    end
    redis.call('ZREM', line, id)
    redis.call('ZREM', beat, id)
    if alive then
      used = used + take(id, weight, ends, lease)
      wake(process, serial, draw(micros, lease))
    end
  end
end

-- Passes over some of those who have died, wherever they stand.
local function sweep(now)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', beat, '-inf', now, 'LIMIT', 0, 100)) do
    redis.call('ZREM', line, id)
    redis.call('ZREM', beat, id)
  end
end
