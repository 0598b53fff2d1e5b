-- What the scripts share where it is not as usual: how units are taken, and how the line moves.
--
-- It stands in a branch of each script, so that it is built only where it is needed: to build
-- functions takes a script longer than to run them.

-- The next ticket. A counter that has expired goes on from the clock, which has counted more
-- microseconds than there were tickets, so it does not matter when it expires.
--
-- Only every fourth ticket prolongs the life of `held`. A permit that is not refreshed lasts a
-- lease at most, so three of them, each granted before the last has ended, are over within four
-- leases of the ticket or the refresh before them, which left `held` seven at least.
local function draw(lease)
  local drawn = call('INCR', ticket)
  if drawn == 1 then
    drawn = micros
    call('SET', ticket, text(drawn), 'PX', lease * LEASES)
  elseif drawn % 4 == 0 then
    call('PEXPIRE', ticket, lease * LEASES)
    call('PEXPIRE', held, lease * LEASES)
  end
  return drawn
end

-- Adds the units of a permit to the `used` ones, until `ends`, and draws its token. Returns the
-- token, and how many units are held then.
local function take(id, weight, used, ends, lease)
  local now_used = used + call('ZADD', held, ends, id)
  for unit = 2, weight do
    now_used = now_used + call('ZADD', held, ends, id .. ':' .. unit)
  end
  if used == 0 then
    call('PEXPIRE', held, lease * LEASES)
  end
  return draw(lease), now_used
end

-- Tells one process that one of its permits was granted.
local function wake(process, serial, token)
  local prefix = string.match(held, '^[^{]*')
  call('PUBLISH', prefix .. 'wake:' .. process, serial .. ' ' .. text(token))
end

-- Grants to the head of the line while it fits, each under its own limit, and passes over those
-- who have died. Nobody behind the head is looked at, so no lighter claim starves a heavy one.
-- What is granted so ends when its owner ceases to count as alive, unless the owner takes it up by
-- a refresh: if it has just died, it holds the line up no longer than it would have as a waiter.
-- Returns how many units are held then, and the id of the head if one still waits.
local function advance(used)
  while true do
    local id = call('ZRANGE', line, 0, 0)[1]
    if not id then
      return used
    end
    local process, serial, limit, weight, lease =
      string.match(id, '^(%w+)%.(%x+)%.(%d+)%.(%d+)%.(%d+)$')
    weight, lease = tonumber(weight), tonumber(lease)
    local ends = process and tonumber(call('ZSCORE', beat, id) or 0) or 0
    local alive = ends > now
    if alive and used + weight > tonumber(limit) then
      return used, id
    end
    call('ZREM', line, id)
    call('ZREM', beat, id)
    if alive then
      local token
      token, used = take(id, weight, used, text(ends), lease)
      wake(process, serial, token)
    end
  end
end

-- Whether as many wait as may. Before it says so, it passes over some of those who have died,
-- wherever they stand.
local function is_full(longest)
  if call('ZCARD', line) < longest then
    return false
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', beat, '-inf', text(now), 'LIMIT', 0, 100)) do
    call('ZREM', line, id)
    call('ZREM', beat, id)
  end
  return call('ZCARD', line) >= longest
end
