
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
--         window:reservation -> how many of its units its holder has settled, all after a release with `keep`; `-` while its
--         claim is not granted yet; `!` once the reservation has ended
--
-- Spent units return with time, and reserved units do not. A grant reserves, a settlement moves units from reserved to
-- spent, and the end of a permit frees what is left. So nothing is returned twice. All numbers are integers, and CREDIT
-- keeps what a rounding leaves.
--
-- A script can fail midway. So one command changes a reservation's field together with the state. A member without a field, or
-- with that of an ended reservation, counts for nothing. It stays until `close`, because a cluster's node may abort a script that
-- names a key that it has emptied. If the script fails before, it stays until its end.

budgets = {}

-- Builds the functions that are rarely needed, see below.
local rarely

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

-- Returns the units in use.
local function used_of(budget)
  return math.min(budget.spent + budget.reserved, ALL_UNITS)
end

-- True for the hash of budgets, which stands in the place of a semaphore's token.
local function is_hash(key)
  return string.sub(key, -8) == '}:budget'
end

-- Returns the state as the hash stores it.
local function state_of(budget)
  return string.format(
    '%d %d %d %d %d', math.min(budget.spent, MOST_EXACT), budget.at, budget.reserved, budget.limit, budget.credit)
end

-- Writes the state, and fields of reservations with their values.
local function save(budget, ...)
  call('HSET', budget.hash, budget.field, state_of(budget), ...)
  budget.has_state = true
end

-- Extends the TTLs. No key expires before time has returned everything, even if what is reserved is spent at the end of a
-- lease. The hash outlives `held`, so one TTL shows that both are long enough. Both get more than they need, so that this is
-- rarely done. `is_new`: the hash has no TTL yet.
local function outlive(budget, lease, is_new)
  local windows = (budget.spent + budget.reserved) / math.max(budget.limit, 1) + 1
  local needed = math.max(windows, 2) * budget.window + lease * LEASES
  local left = budget.is_empty and 0 or call('PTTL', budget.held)
  if is_new or left < needed then
    -- Never shorter than before: the leases of others may be longer.
    local ttl = math.max(math.min(math.ceil(needed * 1.25), MOST_EXACT), left)
    if call('PTTL', budget.hash) < ttl then
      call('PEXPIRE', budget.hash, text(ttl * 1.25))
    end
    call('PEXPIRE', budget.held, text(ttl))
    budget.is_empty = false
  end
end

-- Returns the limit and the weight that an id names.
local function limit_and_weight(id)
  local limit, weight = string.match(id, '^%w+%.%w+%.%w+%.%w+%.(%w+)%.(%w+)%.')
  return tonumber(limit or '0', 36), tonumber(weight or '0', 36)
end

-- Returns the field of a reservation, or nothing if the reservation has none or has ended.
local function field_of(budget, id)
  local known = budget.known[id]
  if known == nil then
    known = call('HGET', budget.hash, budget.prefix .. id)
    budget.known[id] = known
  end
  return known ~= '!' and known or nil
end

-- The scripts find a budget by its `held`. From here on the functions of grant.lua know budgets too.
--
-- Reads the budget whose keys begin at this number, and returns the units in use. `may_wait`: claims may wait, so the head of
-- its queue is read too. `id`: the only reservation that the call names, whose field is read in the same command.
local count_units = count_held
count_held = function(key, now, may_wait, id)
  local held, hash = KEYS[key], KEYS[key + 3]
  if not is_hash(hash) then
    return count_units(key, now)
  end
  if key == 1 then
    -- The first write is a removal: a server whose memory is full accepts other writes only after one.
    call('ZREM', held, '')
  end
  local window = string.match(held, '^.*}(%d+):held$')
  local prefix = window .. ':'
  local fields = call('HMGET', hash, window, 'pause', id and prefix .. id or window)
  local spent, at, reserved, limit, credit = string.match(fields[1] or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  local first = call('ZRANGE', held, 0, 0, 'WITHSCORES')
  local is_empty = not first[1]
  local budget = {
    key = key, held = held, hash = hash, field = window, prefix = prefix, window = window + 0,
    spent = (spent or 0) + 0, at = (at or now) + 0, reserved = (reserved or 0) + 0, limit = (limit or 0) + 0,
    credit = (credit or 0) + 0, has_state = limit ~= nil, is_empty = is_empty, first_id = first[1], removed = {},
    known = id and {[id] = fields[3]} or {}, head = may_wait and call('ZRANGE', KEYS[key + 1], 0, 0)[1] or nil
  }
  budgets[held] = budget
  if not budget.has_state and not is_empty then
    rarely().restore(budget)
  end
  if not is_empty and first[2] + 0 <= now then
    rarely().remove_ended(budget, now)
  elseif is_empty and (budget.reserved > 0 or now - budget.at > 2 * budget.window and call('HLEN', hash) > 1) then
    -- `held` has expired, or all was released. It lasts for two windows at least, and may leave fields behind.
    rarely().spend_reserved(budget, now)
  end
  move_to(budget, now)
  if budget.at > now then
    -- The clock was set back. Saved, because a script that changes nothing else must not keep units from returning.
    budget.at = now
    save(budget)
  end
  -- The hash alone shows that a key is paused. The entry in the queue follows it.
  local is_paused = fields[2] and rarely().enter_pause(budget, fields[2], now)
  if not is_paused and is_pause(budget.head) then
    budget.has_other_pause = call('ZADD', KEYS[key + 2], 'XX', 'CH', 0, budget.head) == 1
  end
  budget.due = budget.head and rarely().due_for(budget, budget.head)
  return used_of(budget)
end

-- True if a reservation is there and has not ended.
local function is_reserved(budget, id, now)
  if budget.is_empty or budget.removed[id] then
    return false
  end
  -- Usually a key has one reservation, which is read already.
  local is_there = id == budget.first_id or (call('ZSCORE', budget.held, id) or 0) + 0 > now
  return is_there and field_of(budget, id) ~= nil
end

-- Settles a reservation of `weight` units. Only the growth of a total counts. Returns the units that are still reserved, and
-- the new total. `is_new`: no earlier settlement counts.
local function settle(budget, id, weight, total, is_new)
  local before = not is_new and tonumber(field_of(budget, id)) or 0
  total = math.max(total, before)
  budget.spent = budget.spent + total - before
  budget.known[id] = text(total)
  local settled = math.min(total, weight)
  budget.reserved = math.max(budget.reserved - settled + math.min(before, weight), 0)
  return weight - settled, total
end

-- Reserves the units of a claim, once, or moves the end of its reservation. See acquire.lua for `terms`.
local function reserve(budget, id, terms, now, expires_at)
  local limit, weight = limit_and_weight(id)
  local is_new = not is_reserved(budget, id, now)
  if not budget.has_state then
    -- A member without any state shows that the hash is lost.
    save(budget)
  end
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
    save(budget, budget.prefix .. id, text(settled))
  elseif is_new then
    budget.known[id] = '-'
    save(budget, budget.prefix .. id, '-')
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
  budget.known[id] = keep == '' and '!' or text(settled + left)
  save(budget, budget.prefix .. id, budget.known[id])
  budget.removed[id] = keep == '' or nil
  if settled > weight then
    outlive(budget, 0)
  end
  return 1
end

-- Runs a command on a key with any number of members or fields.
local function call_for_all(command, key, all)
  for at = 1, #all, CHUNK do
    call(command, key, unpack(all, at, math.min(at + CHUNK - 1, #all)))
  end
end

-- Removes the members that have ended or were released. The script does not use the budget after this.
local function close(budget)
  local members, fields = {}, {}
  for id in pairs(budget.removed) do
    members[#members + 1], fields[#fields + 1] = id, budget.prefix .. id
  end
  call_for_all('HDEL', budget.hash, fields)
  call_for_all('ZREM', budget.held, members)
end

-- Functions for what is rare. Built when the first of them is needed, because building a function takes longer than most
-- calls of it.
local rare_functions
function rarely()
  if rare_functions then
    return rare_functions
  end
  local rare = {}
  rare_functions = rare

  -- Returns for how many ms these units do not fit if `reserved` stays as it is, or nothing if time alone does not help.
  function rare.due(budget, weight, limit, reserved)
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

  -- Lets keys last for some ms at least.
  function rare.extend(keys, ms)
    for _, key in ipairs(keys) do
      if call('PTTL', key) < ms then
        call('PEXPIRE', key, text(ms))
      end
    end
  end

  -- Returns `due` for the claim of this id.
  function rare.due_for(budget, id)
    local limit, weight = limit_and_weight(id)
    return rare.due(budget, weight, limit, budget.reserved)
  end

  -- Removes all reservations that have ended, in the order of their ends. The rest of a granted permit's reservation is spent
  -- at its end. All are removed at once: once the state is that of now, an earlier end cannot be spent at its time. Each takes
  -- the server some 6 us.
  function rare.remove_ended(budget, now)
    local offset = 0
    repeat
      local fields, ended = {}, call(
        'ZRANGEBYSCORE', budget.held, '-inf', text(now), 'WITHSCORES', 'LIMIT', offset, CHUNK)
      for at = 1, #ended, 2 do
        local id = ended[at]
        local _, weight = limit_and_weight(id)
        local field = field_of(budget, id)
        local settled = tonumber(field or '')
        local left = field and math.max(weight - (settled or 0), 0) or 0
        if settled then
          move_to(budget, tonumber(ended[at + 1]))
          budget.spent = budget.spent + left
        end
        budget.reserved = math.max(budget.reserved - left, 0)
        budget.removed[id] = true
        local last = #fields
        fields[last + 1], fields[last + 2] = budget.prefix .. id, '!'
      end
      save(budget, unpack(fields))
      offset = offset + #ended / 2
    until #ended < 2 * CHUNK
    outlive(budget, 0)
    budget.has_ended = true
  end

  -- Enters the pause of the key, `END ID`, into the budget's queue, unless the queue has it with the same end: the window may not
  -- have been in use when the key was paused. Returns true, or nothing if the pause is over or the field has another form.
  function rare.enter_pause(budget, pause, now)
    local ends, id, length = string.match(pause, '^(%d+) (%w+%.%w+%.%w+%.%w+%.%w+%.%w+%.(%w+)%..+)$')
    if not id then
      return
    end
    if tonumber(ends) > now + tonumber(length, 36) then
      -- The clock was set back.
      ends = text(now + tonumber(length, 36))
      call('HSET', budget.hash, 'pause', ends .. ' ' .. id)
    end
    if tonumber(ends) <= now then
      if budget.window > 0 then
        -- If it stayed, it would come back when the clock is set back. The state is saved first, so that the hash is never
        -- empty.
        save(budget)
        call('HDEL', budget.hash, 'pause')
      end
      return
    end
    local queue, alive = KEYS[budget.key + 1], KEYS[budget.key + 2]
    local old = is_pause(budget.head) and budget.head
    local known = old and tonumber(call('ZSCORE', alive, old) or 0) or 0
    if old == id and known == tonumber(ends) then
      rare.extend({alive, queue, budget.hash}, ends - now)
      return true
    end
    call('ZADD', queue, 0, id)
    call('ZADD', alive, ends, id)
    rare.extend({alive, queue, budget.hash}, ends - now)
    if old and old ~= id then
      call('ZREM', queue, old)
      call('ZREM', alive, old)
    end
    budget.head, budget.has_other_pause = id, known <= now or known > tonumber(ends)
    -- The end of the pause finds the windows that have a state.
    if budget.window > 0 then
      save(budget)
    end
    return true
  end

  -- The hash is lost, so a whole limit counts as spent.
  function rare.restore(budget)
    for _, member in ipairs(call('ZRANGE', budget.held, 0, -1)) do
      local limit, weight = limit_and_weight(member)
      budget.reserved, budget.limit, budget.spent = budget.reserved + weight, limit, limit
      call('HSET', budget.hash, budget.prefix .. member, 0)
    end
    budget.known = {}
    outlive(budget, 0, true)
    save(budget)
  end

  -- `held` is empty, so all that was reserved counts as used since the last call, and no field is of use. If `held` was
  -- lost instead, this is too early for permits that are in use: an eviction may admit a whole limit more.
  function rare.spend_reserved(budget, now)
    budget.spent = budget.spent + budget.reserved
    budget.reserved = 0
    move_to(budget, now)
    save(budget)
    local all, fields, prefix = call('HGETALL', budget.hash), {}, budget.prefix
    for at = 1, #all, 2 do
      if string.sub(all[at], 1, #prefix) == prefix then
        fields[#fields + 1] = all[at]
      end
    end
    call_for_all('HDEL', budget.hash, fields)
    budget.known = {}
  end

  function rare.granting(semaphores, now, micros, floor, ended, is_provisional)
    local free, leave, advance, finish, revocation_of, clamp, waiting_in, drop, enter, tell_to_poll,
      grant, hold, flow_of, last_of = semaphores(now, micros, floor, ended, is_provisional)

    -- Returns the amount that a unit adds to the tags of a flow of share 1: less if many units may be granted, so that the tags
    -- of a queue that is never empty stay below those of revocations for a year.
    unit_cost = function(queue, id)
      local window = string.match(queue, '}(%d+):queue$')
      local limit = limit_and_weight(id)
      return window and math.min(UNIT, 100000 * window / math.max(limit, 1)) or UNIT
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
        outlive(budget, ARGV[1] + 0)
      end
    end

    -- Notifies the head of a budget's queue that it should poll, if it is another one than before, or may fit sooner.
    local function finish_any(held, queue, alive)
      local budget = budgets[held]
      local may_wait = budget and (budget.head or budget.answered) and waiting_in(queue) > 0
      local head = may_wait and call('ZRANGE', queue, 0, 0)[1]
      local semaphore = head and {held = held, queue = queue, used = used_of(budget)}
      if head and not is_pause(head) then
        local ms, known = rarely().due_for(budget, head), budget.answered or budget.head
        if head ~= known or budget.has_ended and not budget.answered or ms and ms < (budget.due or math.huge) then
          tell_to_poll(semaphore, 0, -math.huge)
        end
      elseif head and budget.has_other_pause then
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

  return rare
end

local semaphores = granting
granting = function(...)
  return rarely().granting(semaphores, ...)
end
