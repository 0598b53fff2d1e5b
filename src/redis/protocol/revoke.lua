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
local advance, leave, weight_of, revocation_of = granting(now, micros, floor)
call('ZREMRANGEBYSCORE', held, '-inf', text(now))

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
  for _, unit in ipairs(units_of(id)) do
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
  for _, member in ipairs(call('ZRANGE', held, 0, -1)) do
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
  return {now, 0}
end
local ids = added_to(id)
ids[#ids + 1] = id

-- The units go last. While a slot of a cluster moves, the script ends with an error where it looks at a
-- key that it has emptied, and a permit is not to be revoked by half then.
--
-- What has been remembered for long enough is forgotten.
call('ZREMRANGEBYSCORE', alive, text(-REVOKED - now), text(-REVOKED))
local channel = string.match(held, '^[^{]*') .. 'wake:'
for _, id in ipairs(ids) do
  call('ZADD', alive, text(-REVOKED - now - remember), revocation_of(id))
  local process, serial = string.match(id, '^(%w+)%.(%x+)')
  call('PUBLISH', channel .. process, serial .. ' revoked')
end
if call('PTTL', alive) < remember then
  call('PEXPIRE', alive, text(remember))
end

leave(queue, alive, id)
call('ZREM', alive, id)
local units = {}
for _, id in ipairs(ids) do
  for _, unit in ipairs(units_of(id)) do
    units[#units + 1] = unit
  end
end
for first = 1, #units, 1000 do
  call('ZREM', held, unpack(units, first, math.min(first + 999, #units)))
end
local used = call('ZCARD', held)
advance({held = held, queue = queue, alive = alive, token = token, used = used}, true)
return {now, 1}
