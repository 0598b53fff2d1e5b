-- revoke: takes a permit from whoever holds it, or a claim from the queue, for an operator.
--
-- Promises: only the permit that is named is touched, with the units that were added to it, and only if
-- its id is held or waits now. Its id is remembered for a while, and acquires nothing meanwhile, nor do units
-- that were added to it, unless it is the delayed first acquire of all: what that brings back lasts until the
-- owner hears of the revocation. The next waiters are granted in the same call, and the owner is told.
--
-- KEYS  held, queue, alive, token; see grant.lua
-- ARGV  1 floor     microseconds, the least token for a semaphore that has none yet
--       2 remember  ms, for which the id is remembered
--       3 1, the number of arguments that follow
--       4 id        the permit's id
-- Returns the server's time in ms, and 1 (it was revoked) or 0 (there is no such permit).

local held, queue, alive, token = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local floor, remember, id = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[4]
local now, micros = clock()
local semaphore, ended = {held = held, queue = queue, alive = alive, token = token}, {}
local free, leave, advance, finish, weight_of, revocation_of = granting(now, micros, floor, ended)
semaphore.used, ended[held] = count_held(held, now)

-- The units of an id: more than any permit has are those of none.
local function units_of(id)
  local units = {id}
  for unit = 2, math.min(weight_of(id), 1000) do
    units[unit] = id .. ':' .. unit
  end
  return units
end

-- Whether an id waits, or holds anything.
local function is_there(id)
  if call('ZSCORE', queue, id) then
    return true
  end
  for _, unit in ipairs(semaphore.used > 0 and units_of(id) or {}) do
    if call('ZSCORE', held, unit) then
      return true
    end
  end
end

-- The ids of units that were added to a permit.
local function added_to(id)
  local process, serial = string.match(revocation_of(id), '^revoked:(%w+)%.(%x+)$')
  local ending, added = '.+' .. serial, {}
  local size = -#ending
  for _, member in ipairs(semaphore.used > 0 and call('ZRANGE', held, 0, -1) or {}) do
    -- A key may have very many members, and matching each takes four times as long as listing them.
    if string.sub(member, size) == ending
      and string.match(member, '^(%w+)%.%x+%.%d+%.%d+%.%d+%.%w+%.%+%x+$') == process
    then
      added[#added + 1] = member
    end
  end
  return added
end

if not weight_of(id) or string.find(id, ':', 1, true) or not is_there(id) then
  finish(held, queue, alive)
  return {now, 0}
end
local ids = added_to(id)
ids[#ids + 1] = id

local channel = string.match(held, '^[^{]*') .. 'wake:'
for _, id in ipairs(ids) do
  call('ZADD', alive, text(-REVOKED - now - remember), revocation_of(id))
  local process, serial = string.match(id, '^(%w+)%.(%x+)')
  call('PUBLISH', channel .. process, serial .. ' revoked')
end
-- What has been remembered for long enough is forgotten.
call('ZREMRANGEBYSCORE', alive, text(-REVOKED - now), text(-REVOKED))
if call('PTTL', alive) < remember then
  call('PEXPIRE', alive, text(remember))
end

leave(queue, alive, id)
for _, id in ipairs(ids) do
  for _, unit in ipairs(units_of(id)) do
    free(semaphore, unit)
  end
end
advance(semaphore)
finish(held, queue, alive)
return {now, 1}
