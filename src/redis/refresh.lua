-- refresh: moves the end of live leases forward.
--
-- Promise: a lease that has ended stays ended, even when nobody has taken its place yet. Only
-- members that are named, and still there, are touched.
--
-- Of a semaphore's keys it is given the first alone, since it grants nothing: the head of a line
-- looks by itself when a lease ends.
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

-- One list for all semaphores, because lists are slow to grow.
local renewed = {}
local all, at = true, 2
for _, held in ipairs(KEYS) do
  local units = tonumber(ARGV[at])
  call('ZREMRANGEBYSCORE', held, '-inf', upto)
  for unit = 1, units do
    renewed[2 * unit - 1], renewed[2 * unit] = ends, ARGV[at + unit]
  end
  local changed = call('ZADD', held, 'XX', 'CH', unpack(renewed, 1, 2 * units))
  if call('PTTL', held) < short then
    call('PEXPIRE', held, life)
  end
  all, at = all and changed == units, at + units + 1
end
if all then
  return 1
end

-- Some are lost, or were refreshed within this very millisecond.
local answer, at = {}, 2
for _, held in ipairs(KEYS) do
  local last = at + ARGV[at]
  for arg = at + 1, last do
    answer[#answer + 1] = call('ZSCORE', held, ARGV[arg]) and 1 or 0
  end
  at = last + 1
end
return answer
