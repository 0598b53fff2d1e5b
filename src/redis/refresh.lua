-- refresh: moves the end of live leases forward.
--
-- Promise: a lease that has ended stays ended, even when nobody has taken its place yet. Only
-- members that are named, and still there, are touched.
--
-- ARGV  1 lease  ms
--       and for each semaphore every unit of every permit to refresh
-- Returns 1 when all are held, else for each unit 1 (held) or 0 (lost).

-- include keys.lua
-- include clock.lua

local lease = tonumber(ARGV[1])
local ends, upto = text(now + lease), text(now)
-- Of a key's life, one lease may pass before it begins anew: to look is cheaper than to prolong.
local life, short = text(lease * LEASES), lease * (LEASES - 1)

-- Some have ended: lets the next in.
local function let_in(held, line, beat, ticket)
  -- include line.lua

  advance(call('ZCARD', held))
end

-- One list for all semaphores, because lists are slow to grow.
local renewed = {}
local all, at = true, 2
for key = 1, #KEYS, 4 do
  local held, units = KEYS[key], tonumber(ARGV[at])
  local ended = call('ZREMRANGEBYSCORE', held, '-inf', upto)
  for unit = 1, units do
    renewed[2 * unit - 1], renewed[2 * unit] = ends, ARGV[at + unit]
  end
  local changed = call('ZADD', held, 'XX', 'CH', unpack(renewed, 1, 2 * units))
  if call('PTTL', held) < short then
    call('PEXPIRE', held, life)
  end
  if ended > 0 then
    let_in(held, KEYS[key + 1], KEYS[key + 2], KEYS[key + 3])
  end
  all, at = all and changed == units, at + units + 1
end
if all then
  return 1
end

-- Some are lost, or were refreshed within this very millisecond.
local answer, at = {}, 2
for key = 1, #KEYS, 4 do
  local last = at + ARGV[at]
  for arg = at + 1, last do
    answer[#answer + 1] = call('ZSCORE', KEYS[key], ARGV[arg]) and 1 or 0
  end
  at = last + 1
end
return answer
