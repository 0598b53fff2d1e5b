-- What the scripts share where it is not as usual: how units are taken, and how the line moves.
--
-- It stands in each script behind what is usual, because to build functions takes a script longer
-- than to run them. Before it stands the clock, read once, so that a script sees one instant:
-- `micros` in microseconds and `now` in ms.

-- Numbers of this size lose digits when they turn into text by themselves, and take long to.
local function text(number)
  return string.format('%.0f', number)
end

-- The next ticket. A counter that has expired goes on from the clock, which has counted more
-- microseconds than there were tickets, so it does not matter when it expires.
--
-- Only every fourth ticket prolongs the life of `held`. A permit that is not refreshed lasts a
-- lease at most, and a refresh prolongs it too; so three of them, each granted before the last
-- has ended, are over within four leases of the first.
local function draw(lease)
  local drawn = redis.call('INCR', ticket)
  if drawn == 1 then
    drawn = micros
    redis.call('SET', ticket, text(drawn), 'PX', lease * LEASES)
  elseif drawn % 4 == 0 then
    redis.call('PEXPIRE', ticket, lease * LEASES)
    redis.call('PEXPIRE', held, lease * LEASES)
  end
  return drawn
end

-- Adds the units of a permit to the `used` ones, until `ends`, and draws its token. Returns the
-- token, and how many units are held then.
local function take(id, weight, used, ends, lease)
  ends = text(ends)
  local now_used = used + redis.call('ZADD', held, ends, id)
  for unit = 2, weight do
    now_used = now_used + redis.call('ZADD', held, ends, id .. ':' .. unit)
  end
  if used == 0 then
    redis.call('PEXPIRE', held, lease * LEASES)
  end
  return draw(lease), now_used
end

-- Tells one process that one of its permits was granted.
local function wake(process, serial, token)
  local prefix = string.match(held, '^[^{]*')
  redis.call('PUBLISH', prefix .. 'wake:' .. process, serial .. ' ' .. text(token))
end

-- Grants to the head of the line while it fits, each under its own limit, and passes over those
-- who have died. Nobody behind the head is looked at, so no lighter claim starves a heavy one.
-- What is granted so ends when its owner ceases to count as alive, unless the owner takes it up by
-- a refresh: if it has just died, it holds the line up no longer than it would have as a waiter.
-- Returns how many units are held then, and the id of the head if one still waits.
local function advance(used)
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
      local token
      token, used = take(id, weight, used, ends, lease)
      wake(process, serial, token)
    end
  end
end

-- Passes over some of those who have died, wherever they stand.
local function sweep()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', beat, '-inf', now, 'LIMIT', 0, 100)) do
    redis.call('ZREM', line, id)
    redis.call('ZREM', beat, id)
  end
end
