
-- Budgets, for the scripts that know them: limits of units per window.
--
-- The names of a budget's keys have the window in ms behind the key's tag: `{POLICY:KEY}60000:held`. Its queue is that of
-- a semaphore. The other keys:
--
-- held    reservation of a permit -> lease end, ms. One member, however many units it reserves: those that its id names
-- budget  a hash instead of the token, which the budgets of all windows of a policy and key share: `{POLICY:KEY}:budget`.
--         window -> SPENT AT RESERVED LIMIT CREDIT: the units that were spent and have not returned by AT, in ms; the units that
--         permits have reserved and not settled; how many units return within a window, the limit of the last grant; and
--         what has returned of the next unit, in parts: a unit has as many parts as the window has ms
--         `pause` -> END ID of a pause of the key, see pause.lua
--         window:reservation -> how many of its units its holder has settled. Without this field the claim is not granted yet
--
-- Spent units return with time, and reserved units do not. A grant reserves, a settlement moves units from reserved to
-- spent, and the end of a permit frees what is left. So nothing is returned twice. All numbers are integers, and CREDIT
-- keeps what a rounding leaves.
--
-- Members stay until `close`, because a cluster's node may abort a script that names a key that it has emptied. A script can
-- fail midway. So one command takes the rest of a reservation from RESERVED and sets its field to its whole weight. The member
-- and the field are removed later.

budgets = {}

-- How many members or fields one command names, because Lua passes a few thousand values at most.
local CHUNK = 500

-- Numbers are capped here, so that they stay exact.
local MOST_EXACT = 4503599627370496

-- No waiter fits beside this many units, and a message can carry the number.
local ALL_UNITS = 4294967295

-- Returns a * b + extra, divided by `divisor` and rounded down, and the rest. Exact, if each is below 2^32.
local function scale(a, b, divisor, extra)
  local low = a % 65536
  local product = (a - low) / 65536 * b
  local rest = product % divisor
  local quotient = (product - rest) / divisor * 65536
  product = rest * 65536 + low * b + extra
  rest = product % divisor
  return quotient + (product - rest) / divisor, rest
end

-- Brings the state to a time: subtracts the units that have come back until it.
local function move_to(budget, time)
  if time <= budget.at or budget.spent == 0 then
    budget.at = math.max(time, budget.at)
    return
  end
  local passed, window = time - budget.at, budget.window
  local part = passed % window
  local returned, credit = scale(budget.limit, part, window, budget.credit)
  returned = returned + (passed - part) / window * budget.limit
  local is_full = returned >= budget.spent
  budget.spent = is_full and 0 or budget.spent - returned
  budget.credit, budget.at = is_full and 0 or credit, time
end

local function spend(budget, units)
  budget.spent = math.min(budget.spent + units, MOST_EXACT)
end

-- Returns the units in use.
local function used_of(budget)
  return math.min(budget.spent + budget.reserved, ALL_UNITS)
end

-- Returns for how many ms these units do not fit if `reserved` stays as it is, or nothing if time alone does not help.
local function due(budget, weight, limit, reserved)
  local room = limit - reserved - weight
  if room < 0 then
    return
  end
  local over, rate = budget.spent - room, math.max(budget.limit, 1)
  if over <= 0 then
    return 0
  end
  local part = over % rate
  local ms = scale(part, budget.window, rate, rate - 1 - budget.credit)
  return math.min(math.max((over - part) / rate * budget.window + ms, 0), MOST_EXACT)
end

-- True for the hash of budgets, which stands in the place of a semaphore's token.
local function is_hash(key)
  return string.sub(key, -8) == '}:budget'
end

-- Runs a command on a key with many members or fields.
local function call_for_all(command, key, all)
  for at = 1, #all, CHUNK do
    call(command, key, unpack(all, at, math.min(at + CHUNK - 1, #all)))
  end
end

-- Returns the id of the only unit in the arguments from `first` to `last`, or nothing if these are several.
local function only_id(first, last)
  return first == last and string.match(ARGV[first], '^%S+') or nil
end

-- Lets keys last for some ms at least.
local function extend(keys, ms)
  for _, key in ipairs(keys) do
    if call('PTTL', key) < ms then
      call('PEXPIRE', key, text(ms))
    end
  end
end

-- Returns the field of what a reservation has settled. A permit may have one id in the budgets of several windows.
local function field_of(budget, id)
  return budget.field .. ':' .. id
end

local function state_of(budget)
  return string.format(
    '%d %d %d %d %d', budget.spent, budget.at, budget.reserved, budget.limit, budget.credit)
end

-- Writes the state, and what a reservation has settled, if its field is named.
local function save(budget, ...)
  call('HSET', budget.hash, budget.field, state_of(budget), ...)
end

-- Extends the TTLs. No key expires before time has returned everything, even if what is reserved is spent at the end of a
-- lease. The hash outlives `held`. Both get more than they need, so that this is rarely done.
local function outlive(budget, lease)
  local windows = (budget.spent + budget.reserved) / math.max(budget.limit, 1) + 1
  local needed = math.max(windows, 2) * budget.window + lease * LEASES
  local ttl = text(math.min(math.ceil(needed * 1.25), MOST_EXACT))
  local left = call('PTTL', budget.hash)
  if budget.is_empty or left < needed or call('PTTL', budget.held) < needed then
    call('PEXPIRE', budget.held, ttl)
    if left < tonumber(ttl) then
      call('PEXPIRE', budget.hash, ttl)
    end
    budget.is_empty = false
  end
end

-- Returns the limit and the weight that an id names.
local function limit_and_weight(id)
  local limit, weight = string.match(id, '^%w+%.%w+%.%w+%.%w+%.(%w+)%.(%w+)%.')
  return tonumber(limit or '0', 36), tonumber(weight or '0', 36)
end

-- Returns `due` for the claim of this id.
local function due_for(budget, id)
  local limit, weight = limit_and_weight(id)
  return due(budget, weight, limit, budget.reserved)
end

-- Returns how many units a reservation has settled, as text, or false.
local function settled_of(budget, id)
  local known = budget.known[id]
  if known == nil then
    known = call('HGET', budget.hash, field_of(budget, id))
  end
  return known
end

-- Removes all reservations that have ended, in the order of their ends. The rest of a granted permit's reservation is spent
-- at its end. All are removed at once: once the state is that of now, an earlier end cannot be spent at its time. Each takes
-- the server some 6 us.
local function remove_ended(budget, now)
  local fields, offset = {}, 0
  repeat
    local ended = call(
      'ZRANGEBYSCORE', budget.held, '-inf', text(now), 'WITHSCORES', 'LIMIT', offset, CHUNK)
    for at = 1, #ended, 2 do
      local id = ended[at]
      local _, weight = limit_and_weight(id)
      local settled = settled_of(budget, id)
      local left = math.max(weight - (settled or 0), 0)
      if settled then
        move_to(budget, tonumber(ended[at + 1]))
        spend(budget, left)
      end
      budget.reserved = math.max(budget.reserved - left, 0)
      budget.removed[id] = true
      local last = #fields
      fields[last + 1], fields[last + 2] = field_of(budget, id), text(math.max(weight, settled or 0))
    end
    offset = offset + #ended / 2
  until #ended < 2 * CHUNK
  fields[#fields + 1], fields[#fields + 2] = budget.field, state_of(budget)
  call_for_all('HSET', budget.hash, fields)
  outlive(budget, 0)
  budget.has_ended = true
end

-- Enters the pause of the key, `END ID`, into the budget's queue, unless a longer one is there. The window may not have been in
-- use when the key was paused.
local function enter_pause(budget, pause, now)
  local ends, id, length = string.match(pause, '^(%d+) (%w+%.%w+%.%w+%.%w+%.%w+%.%w+%.(%w+)%..+)$')
  if not id then
    return
  end
  if tonumber(ends) > now + tonumber(length, 36) then
    -- The clock was set back.
    ends = text(now + tonumber(length, 36))
    call('HSET', budget.hash, 'pause', ends .. ' ' .. id)
  end
  local old = is_pause(budget.head) and budget.head
  local known = old and tonumber(call('ZSCORE', budget.alive, old) or 0) or now
  if tonumber(ends) <= known then
    return
  end
  call('ZADD', budget.queue, 0, id)
  call('ZADD', budget.alive, ends, id)
  extend({budget.queue, budget.alive}, ends - now)
  if old and old ~= id then
    call('ZREM', budget.queue, old)
    call('ZREM', budget.alive, old)
  end
  budget.head, budget.is_paused_anew = id, known <= now
  -- The end of the pause finds the windows that have a state.
  if budget.window > 0 then
    save(budget)
  end
end

-- Reads a budget. `may_wait`: claims may wait, so the head of its queue is read too. `id`: the only reservation that the call
-- names, whose field is read in the same command.
local function open(held, tag, window, now, may_wait, id)
  local budget = {
    held = held, queue = tag .. window .. ':queue', alive = tag .. window .. ':alive', hash = tag .. ':budget',
    field = window, window = tonumber(window), known = {}, removed = {}
  }
  if held == KEYS[1] then
    -- The first write is a removal: a server whose memory is full accepts other writes only after one.
    call('ZREM', held, '')
  end
  local fields = call('HMGET', budget.hash, window, 'pause', id and field_of(budget, id) or window)
  if id then
    budget.known[id] = fields[3]
  end
  local spent, at, reserved, limit, credit = string.match(fields[1] or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  budget.spent, budget.at, budget.reserved = tonumber(spent or 0), tonumber(at or now), tonumber(reserved or 0)
  budget.limit, budget.credit = tonumber(limit or 0), tonumber(credit or 0)
  local first = call('ZRANGE', held, 0, 0, 'WITHSCORES')
  budget.is_empty = not first[1]
  if not limit and first[1] then
    -- The hash is lost, so a whole limit counts as spent.
    for _, member in ipairs(call('ZRANGE', held, 0, -1)) do
      local its_limit, weight = limit_and_weight(member)
      budget.reserved, budget.limit, budget.spent = budget.reserved + weight, its_limit, its_limit
      call('HSET', budget.hash, field_of(budget, member), 0)
    end
    budget.known = {}
    save(budget)
    outlive(budget, 0)
  end
  if first[1] and tonumber(first[2]) <= now then
    remove_ended(budget, now)
  elseif budget.is_empty and budget.reserved > 0 then
    -- `held` has expired or is lost, so all that was reserved counts as used.
    spend(budget, budget.reserved)
    budget.reserved = 0
    save(budget)
    local all, fields = call('HGETALL', budget.hash), {}
    for at = 1, #all, 2 do
      if string.sub(all[at], 1, #window + 1) == window .. ':' then
        fields[#fields + 1] = all[at]
      end
    end
    call_for_all('HDEL', budget.hash, fields)
    budget.known = {}
  end
  move_to(budget, now)
  if budget.at > now then
    -- The clock was set back. Saved, because a script that changes nothing else must not keep units from returning.
    budget.at = now
    save(budget)
  end
  budget.head = may_wait and call('ZRANGE', budget.queue, 0, 0)[1] or nil
  if fields[2] then
    enter_pause(budget, fields[2], now)
  end
  budget.due = budget.head and due_for(budget, budget.head)
  return budget
end

-- The scripts find a budget by its `held`. From here on the functions of grant.lua know budgets too.
local count_units = count_held
count_held = function(held, now, may_wait, id)
  local tag, window = string.match(held, '^(.*})(%d+):held$')
  if not window then
    return count_units(held, now)
  end
  budgets[held] = open(held, tag, window, now, may_wait, id)
  return used_of(budgets[held])
end

-- True if a reservation is there and has not ended.
local function is_reserved(budget, id, now)
  return not budget.is_empty and not budget.removed[id] and tonumber(call('ZSCORE', budget.held, id) or 0) > now
end

-- Settles a reservation of `weight` units. Only the growth of a total counts. Returns the units that are still reserved, and
-- the new total. `is_new`: no earlier settlement counts.
local function settle(budget, id, weight, total, is_new)
  local before = tonumber(not is_new and settled_of(budget, id) or 0)
  total = math.max(total, before)
  spend(budget, total - before)
  budget.known[id] = text(total)
  local settled = math.min(total, weight)
  budget.reserved = math.max(budget.reserved - settled + math.min(before, weight), 0)
  return weight - settled, total
end

-- Reserves the units of a claim, once, or moves the end of its reservation. See acquire.lua for `terms`.
local function reserve(budget, id, terms, now, expires_at)
  local limit, weight = limit_and_weight(id)
  local is_new = not is_reserved(budget, id, now)
  call('ZADD', budget.held, 'GT', expires_at, id)
  if is_new then
    budget.reserved, budget.limit = math.min(budget.reserved + weight, MOST_EXACT), limit
    budget.removed[id] = nil
  end
  -- With a shorter lease the claim is not granted yet.
  local is_granted = ARGV[4] == ARGV[1]
  if is_granted then
    local is_rate = string.find(terms, ' rate', 1, true)
    local _, settled = settle(budget, id, weight, is_rate and weight or 0, is_new)
    save(budget, field_of(budget, id), text(settled))
  else
    save(budget)
    if is_new then
      -- An earlier field may be left.
      call('HDEL', budget.hash, field_of(budget, id))
    end
  end
  outlive(budget, ARGV[1] + 0)
end

-- True if a claim that was not sent before fits. `terms` is as in acquire.lua.
local function fits(budget, id, terms)
  local limit, weight = limit_and_weight(id)
  return string.find(terms, '^%d') and not budget.head and used_of(budget) + weight <= limit
end

-- Ends a reservation. Returns 1 if it was there, else 0. `unit` is
--   ID             nothing was used
--   ID TOTAL       TOTAL units were used
--   ID TOTAL keep  the same, and the member stays without units: an acquire of it may still run. A later release removes it
-- Units of semaphores, as ID:2, are not there.
local function release_reservation(budget, unit, now)
  local id, total, keep = string.match(unit, '^(%S+) ?(%d*) ?(%a*)$')
  if string.find(id, ':', 1, true) or not is_reserved(budget, id, now) then
    return 0
  end
  local _, weight = limit_and_weight(id)
  local left, settled = settle(budget, id, weight, tonumber(total) or 0)
  budget.reserved = math.max(budget.reserved - left, 0)
  budget.known[id] = text(settled + left)
  save(budget, field_of(budget, id), budget.known[id])
  budget.removed[id] = keep == '' or nil
  if settled > weight then
    outlive(budget, 0)
  end
  return 1
end

-- Removes the members that have ended or were released. The script does not use the budget after this.
local function close(budget)
  local members, fields = {}, {}
  for id in pairs(budget.removed) do
    members[#members + 1], fields[#fields + 1] = id, field_of(budget, id)
  end
  call_for_all('ZREM', budget.held, members)
  call_for_all('HDEL', budget.hash, fields)
end

local semaphores = granting
granting = function(now, micros, floor, ended, is_provisional)
  local free, leave, advance, finish, revocation_of, clamp, waiting_in, drop, enter, tell_to_poll,
    grant, hold, flow_of, last_of = semaphores(now, micros, floor, ended, is_provisional)

  -- Returns the amount that a unit adds to the tags of a flow of share 1: less if many units may be granted, so that the tags
  -- of a queue that is never empty stay below those of revocations.
  unit_cost = function(queue, id)
    local window = string.match(queue, '}(%d+):queue$')
    local limit = limit_and_weight(id)
    return window and math.min(UNIT, math.min(1000000 * window, 100000000000) / math.max(limit, 1)) or UNIT
  end

  local function free_any(semaphore, unit)
    local budget = budgets[semaphore.held]
    if not budget then
      return free(semaphore, unit)
    end
    local freed = release_reservation(budget, unit, now)
    semaphore.used = used_of(budget)
    return freed
  end

  local function leave_any(queue, alive, unit)
    return leave(queue, alive, string.match(unit, '^%S+'))
  end

  -- Removes dead waiters. Grants nothing: a claim takes units of all its budgets at once, when it polls.
  local function advance_any(semaphore)
    local budget = budgets[semaphore.held]
    if not budget then
      return advance(semaphore)
    end
    if not budget.head and not budget.answered then
      return
    end
    semaphore.used = ALL_UNITS
    local head = advance(semaphore)
    semaphore.used = used_of(budget)
    return head
  end

  local function grant_any(semaphore, id, weight, expires_at, lease, is_short)
    local budget = budgets[semaphore.held]
    if not budget then
      return grant(semaphore, id, weight, expires_at, lease, is_short)
    end
    reserve(budget, id, semaphore.terms, now, expires_at)
    semaphore.used = used_of(budget)
    return 1
  end

  -- A claim reserves nothing while it waits. If it has a reservation, because the answer to its acquire was lost, it keeps it.
  local function hold_any(semaphore, id, weight, ends, ...)
    local budget = budgets[semaphore.held]
    if not budget then
      hold(semaphore, id, weight, ends, ...)
    elseif is_reserved(budget, id, now) then
      call('ZADD', semaphore.held, 'GT', ends, id)
    end
  end

  -- Notifies the head of a budget's queue that it should poll, if it is another one than before, or may fit sooner.
  local function finish_any(held, queue, alive)
    local budget = budgets[held]
    local may_wait = budget and (budget.head or budget.answered) and waiting_in(queue) > 0
    local head = may_wait and call('ZRANGE', queue, 0, 0)[1]
    local semaphore = head and {held = held, queue = queue, used = used_of(budget)}
    if head and not is_pause(head) then
      local ms, known = due_for(budget, head), budget.answered or budget.head
      if head ~= known or budget.has_ended and not budget.answered or ms and ms < (budget.due or math.huge) then
        tell_to_poll(semaphore, 0, -math.huge)
      end
    elseif head and budget.is_paused_anew then
      tell_to_poll(semaphore, 1, 0)
    end
    if budget then
      close(budget)
    end
    finish(held, queue, alive)
  end

  return free_any, leave_any, advance_any, finish_any, revocation_of, clamp, waiting_in, drop, enter, tell_to_poll,
    grant_any, hold_any, flow_of, last_of
end
