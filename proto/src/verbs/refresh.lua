-- refresh: moves the end of live leases forward.
--
-- Promise: a lease that has ended stays ended, even if its units are still free. Only the ends of units that are named and
-- still held are changed. Ended units are removed. A delayed call that runs after a later one moves no end back. The last
-- token outlives every refreshed permit.
--
-- The script grants nothing, so it has no key of the queue: the head polls when a lease ends.
--
-- KEYS  for each semaphore held, token; see grant.lua
-- ARGV  1 lease  ms
--       and for each semaphore the number of units, and every unit of every permit to refresh
-- Returns the server's time in ms, which means that all units are held; or a list of that time and, for each unit,
-- 1 (held) or 0 (lost).

local now = clock()
local lease = tonumber(ARGV[1])
local expires_at, expired_before = text(now + lease), text(now)
-- A TTL is set again only after one lease, because reading a TTL is cheaper than setting it.
local ttl, short = text(lease * LEASES), lease * (LEASES - 1)

-- All semaphores share one list, because lists are slow to grow.
local members = {}
-- The LEASE_MS of the first id; see grant.lua.
local own = string.match(ARGV[3], '^%w+%.%w+%.%w+%.%w+%.%w+%.%w+%.(%w+)')
-- A refresh for less than the lease in the ids is for a claim that still waits, which may have been granted since, with a
-- later end. So it never moves an end back. A refresh for a whole lease does, if the end was written before the clock was
-- set back.
local option = lease < tonumber(own, 36) and 'GT' or 'XX'
local all, at, is_empty = true, 2, {}
for key = 1, #KEYS, 2 do
  local held, token = KEYS[key], KEYS[key + 1]
  local units, changed = tonumber(ARGV[at]), 0
  if call('ZREMRANGEBYSCORE', held, '-inf', expired_before) > 0 then
    -- A cluster's node that gives a slot away fails each command that names a key which the script has emptied.
    local is_here, count = pcall(call, 'EXISTS', held)
    is_empty[key] = not is_here or count == 0
  end
  if not is_empty[key] then
    for unit = 1, units do
      members[2 * unit - 1], members[2 * unit] = expires_at, ARGV[at + unit]
    end
    changed = call('ZADD', held, 'XX', option, 'CH', unpack(members, 1, 2 * units))
    if call('PTTL', held) < short then
      call('PEXPIRE', held, ttl)
      call('PEXPIRE', token, ttl)
    end
  end
  all, at = all and changed == units, at + units + 1
end
if all then
  return now
end

-- Some units are lost, or their end is already as far ahead, so that ZADD does not count them.
local answer, at = {now}, 2
for key = 1, #KEYS, 2 do
  local last = at + ARGV[at]
  for arg = at + 1, last do
    answer[#answer + 1] = not is_empty[key] and call('ZSCORE', KEYS[key], ARGV[arg]) and 1 or 0
  end
  at = last + 1
end
return answer
