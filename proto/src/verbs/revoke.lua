-- revoke: takes a permit from its holder, or a claim from the queue, for an operator.
--
-- Promises: only the id that is named is touched, and only if it is held or waits now. The next waiters are granted in
-- the same call, and the process of the permit is notified. It then gives up the whole permit, with its growths.
-- The revocation is stored for `remember` ms. Until then an acquire of the permit gets nothing, under any id, if an earlier
-- acquire may have been sent. A delayed first acquire is not checked: its units last until the process learns of the
-- revocation.
--
-- KEYS  held, queue, alive, token; see grant.lua
-- ARGV  1 floor     microseconds, the least token for a semaphore that has none yet
--       2 remember  ms, for which the revocation is stored
--       3 1, the number of arguments that follow
--       4 id        the id of the first unit
-- Returns the server's time in ms, and 1 (it was revoked) or 0 (no such permit exists).

local held, queue, alive, token = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local floor, remember, id = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[4]
local now, micros = clock()
local process, permit, weight = string.match(id, '^(%w+)%.(%w+)%.%w+%.%w+%.%w+%.(%w+)%.[^:]*$')
local semaphore, ended = {held = held, queue = queue, alive = alive, token = token}, {}
local free, leave, advance, finish, revocation_of = granting(now, micros, floor, ended)
semaphore.used, ended[held] = count_held(1, now, true)
if not process then
  finish(held, queue, alive)
  return {now, 0}
end

-- No permit has more units than this. A reservation of a budget is one.
local budget = budgets and budgets[held]
local units, was_there = budget and 1 or math.min(tonumber(weight, 36), 1000), call('ZSCORE', queue, id)
-- A unit as `free` takes it. All units that a budget has reserved count as used, because the holder may have used them.
local function name_of(unit)
  return budget and id .. ' ' .. text(tonumber(weight, 36)) or unit == 1 and id or id .. ':' .. unit
end
if budget then
  was_there = was_there or is_reserved(budget, id, now)
end
for unit = 1, not budget and semaphore.used > 0 and units or 0 do
  was_there = was_there or call('ZSCORE', held, name_of(unit))
end
if was_there then
  -- First, so that nothing has changed if this fails: the user may lack the right to publish.
  notify(held, process, permit .. ' revoked')
  -- Before the permit is gone, so that a call that fails midway can be sent again.
  call('ZADD', alive, text(-REVOKED - now - remember), revocation_of(id))
  if call('PTTL', alive) < remember then
    call('PEXPIRE', alive, text(remember))
  end
  -- Removes the revocations whose time is over.
  call('ZREMRANGEBYSCORE', alive, text(-REVOKED - now), text(-REVOKED))
  leave(queue, alive, id)
  for unit = 1, units do
    free(semaphore, name_of(unit))
  end
  advance(semaphore)
end
finish(held, queue, alive)
return {now, was_there and 1 or 0}
