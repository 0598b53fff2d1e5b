
-- Budgets, for the scripts that know them: limits of units per window.
--
-- The names of a budget's keys have the window in ms behind the key's tag: `{POLICY:KEY}60000:held`. Its queue is that of
-- a semaphore. The other keys:
--
-- held    reservation of a permit -> lease end, ms. One member, however many units it reserves: those that its id names.
--         0: it is not counted any more, and is removed at the end of the script
-- budget  a hash instead of the token, which the budgets of all windows of a policy and key share: `{POLICY:KEY}:budget`.
--         window -> SPENT AT RESERVED LIMIT CREDIT: the units that were spent and have not returned by AT, in ms; the units that
--         permits have reserved and not settled; how many units return within a window, the limit of the last grant; and
--         what has returned of the next unit, in parts: a unit has as many parts as the window has ms
--         window:reservation -> how many of its units its holder has settled. Without this field the claim is not granted yet
--
-- Spent units return with time, and reserved units do not. A grant reserves, a settlement moves units from reserved to
-- spent, and the end of a permit frees what is left. So nothing is returned twice. All numbers are integers, and nothing
-- is rounded.
--
-- A script may be aborted. So a reservation is counted before it is a member of `held`, and a member is removed before its
-- units are free. Units that are reserved although no reservation is left count as spent.

budgets = {}

-- The most ended reservations that one call removes. The others count as ended too, and their units as reserved.
local MOST_ENDED = 100

-- Totals are capped here, so that they stay exact.
local MOST_UNITS = 4503599627370496

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

-- Returns the units that come back until a time.
local function move_to(budget, time)
  if time <= budget.at then
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
  budget.spent = math.min(budget.spent + units, MOST_UNITS)
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
  return math.max((over - part) / rate * budget.window + ms, 0)
end

-- Returns the field of what a reservation has settled. A permit may have one id in budgets of several windows.
local function field_of(budget, id)
  return budget.field .. ':' .. id
end

-- Writes the state, and what a reservation has settled, if its field is named.
local function save(budget, ...)
  call('HSET', budget.hash, budget.field, string.format(
    '%d %d %d %d %d', budget.spent, budget.at, budget.reserved, budget.limit, budget.credit), ...)
end

-- Extends the TTLs. No key expires before time has returned everything, even if what is reserved is spent at the end of a
-- lease. The hash outlives `held`.
local function outlive(budget, lease)
  local windows = (budget.spent + budget.reserved) / math.max(budget.limit, 1) + 1
  local ttl = math.max(windows, 2) * budget.window + lease * LEASES
  if call('PTTL', budget.held) < ttl then
    -- Longer than needed, so that it is rarely set.
    ttl = math.min(math.ceil(ttl * 1.25), MOST_UNITS)
    call('PEXPIRE', budget.held, text(ttl))
    if call('PTTL', budget.hash) < ttl then
      call('PEXPIRE', budget.hash, text(ttl))
    end
  end
end

-- Returns the limit and the weight that an id names.
local function terms_of(id)
  local limit, weight = string.match(id, '^%w+%.%w+%.%w+%.%w+%.(%w+)%.(%w+)%.')
  return tonumber(limit or '0', 36), tonumber(weight or '0', 36)
end

-- Returns the same for the id of a waiter.
local function due_for(budget, id)
  local limit, weight = terms_of(id)
  return due(budget, weight, limit, budget.reserved)
end

-- Removes reservations that have ended, in the order of their ends. The rest of a granted permit's reservation is spent at
-- its end. Returns true if no reservation is left. Then the last member stays.
local function remove_ended(budget, now)
  local held, members, fields = budget.held, {}, {}
  local ended = call('ZRANGEBYSCORE', held, '-inf', text(now), 'WITHSCORES', 'LIMIT', 0, MOST_ENDED)
  for at = 1, #ended, 2 do
    local id, ends = ended[at], tonumber(ended[at + 1])
    members[#members + 1], fields[#fields + 1] = id, field_of(budget, id)
    if ends > 0 then
      local _, weight = terms_of(id)
      local settled = call('HGET', budget.hash, field_of(budget, id))
      local left = math.max(weight - (settled or 0), 0)
      if settled then
        move_to(budget, ends)
        spend(budget, left)
      end
      budget.reserved = math.max(budget.reserved - left, 0)
    end
  end
  if not members[1] then
    return false
  end
  local is_empty = call('ZCARD', held) == #members
  if is_empty then
    call('ZADD', held, 'XX', 0, table.remove(members))
  end
  if members[1] then
    call('ZREM', held, unpack(members))
  end
  save(budget)
  call('HDEL', budget.hash, unpack(fields))
  outlive(budget, 0)
  return is_empty
end

-- Reads a budget. Returns it, and true if all of its reservations have ended, and one is still a member.
local function open(held, tag, window, now)
  local budget = {
    held = held, queue = tag .. window .. ':queue', hash = tag .. ':budget', field = window, window = tonumber(window)
  }
  -- The first write is a removal: a server whose memory is full accepts other writes only after one.
  call('ZREM', held, '')
  local state = call('HGET', budget.hash, window)
  local spent, at, reserved, limit, credit = string.match(state or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  budget.spent, budget.at, budget.reserved = tonumber(spent or 0), tonumber(at or now), tonumber(reserved or 0)
  budget.limit, budget.credit = tonumber(limit or 0), tonumber(credit or 0)
  local count = call('ZCARD', held)
  if not limit then
    -- The state is lost. Nothing is known of what was spent, so all of it is.
    for _, id in ipairs(count > 0 and call('ZRANGE', held, 0, -1) or {}) do
      local its_limit, weight = terms_of(id)
      budget.reserved, budget.limit = budget.reserved + weight, its_limit
      budget.spent = its_limit
      call('HSET', budget.hash, field_of(budget, id), 0)
    end
  end
  local is_empty = count > 0 and remove_ended(budget, now)
  if (count == 0 or is_empty) and budget.reserved > 0 then
    spend(budget, budget.reserved)
    budget.reserved = 0
  end
  move_to(budget, now)
  if budget.at > now then
    -- The clock was set back. Saved, because a script that changes nothing else must not keep units from returning.
    budget.at = now
    save(budget)
  end
  budget.is_empty = count == 0
  budget.head = call('ZRANGE', budget.queue, 0, 0)[1]
  budget.due = budget.head and due_for(budget, budget.head)
  return budget, is_empty
end

-- The scripts find a budget by its `held`. From here on the functions of grant.lua know budgets too.
local count_units = count_held
count_held = function(held, now)
  local tag, window = string.match(held, '^(.*})(%d+):held$')
  if not window then
    return count_units(held, now)
  end
  local is_empty
  budgets[held], is_empty = open(held, tag, window, now)
  return used_of(budgets[held]), is_empty or nil
end

-- Returns the amount that a unit adds to the tags of a flow of share 1: less if many units may be granted, so that the tags
-- of a queue that is never empty stay below those of revocations.
unit_cost = function(queue, id)
  local window = string.match(queue, '}(%d+):queue$')
  local limit = terms_of(id)
  return window and math.min(UNIT, 1000000 * window / math.max(limit, 1)) or UNIT
end

local semaphores = granting
granting = function(now, micros, floor, ended, is_provisional)
  local free, leave, advance, finish, revocation_of, clamp, waiting_in, drop, enter, tell_to_poll,
    grant, hold, flow_of, last_of = semaphores(now, micros, floor, ended, is_provisional)

  -- Settles a reservation. Only the growth of a total counts. Returns how many units it has still reserved, and the
  -- total. `is_new`: it was not there before.
  local function settle(budget, id, total, is_new)
    local _, weight = terms_of(id)
    local before = tonumber(not is_new and call('HGET', budget.hash, field_of(budget, id)) or 0)
    total = math.max(total, before)
    spend(budget, total - before)
    local settled = math.min(total, weight)
    budget.reserved = math.max(budget.reserved - settled + math.min(before, weight), 0)
    return weight - settled, total
  end

  -- True if a reservation is there and has not ended.
  local function is_reserved(budget, id)
    return not budget.is_empty and tonumber(call('ZSCORE', budget.held, id) or 0) > now
  end

  -- Ends a reservation: `ID`, without any use, `ID TOTAL`, or `ID TOTAL keep` if an acquire of it may still run. Then it stays
  -- until it is released again, and has no units. Returns 1 if it was there, else 0.
  local function free_any(semaphore, unit)
    local budget = budgets[semaphore.held]
    if not budget then
      return free(semaphore, unit)
    end
    local id, total, keep = string.match(unit, '^(%S+) ?(%d*) ?(%a*)$')
    if string.find(id, ':', 1, true) or not is_reserved(budget, id) then
      return 0
    end
    local left, settled = settle(budget, id, tonumber(total) or 0)
    budget.reserved = math.max(budget.reserved - left, 0)
    if keep ~= '' then
      save(budget, field_of(budget, id), text(settled + left))
    else
      if call('ZCARD', budget.held) == 1 then
        call('ZADD', budget.held, 'XX', 0, id)
        ended[budget.held] = true
      else
        call('ZREM', budget.held, id)
      end
      save(budget)
      call('HDEL', budget.hash, field_of(budget, id))
    end
    outlive(budget, 0)
    semaphore.used = used_of(budget)
    return 1
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

  -- Reserves the units of a claim, once. With `is_rate` they are spent as soon as the claim is granted.
  local function grant_any(semaphore, id, weight, expires_at, lease, is_short)
    local budget = budgets[semaphore.held]
    if not budget then
      return grant(semaphore, id, weight, expires_at, lease, is_short)
    end
    local held, is_known = budget.held, is_reserved(budget, id)
    if not is_known then
      budget.reserved, budget.limit = math.min(budget.reserved + weight, MOST_UNITS), semaphore.limit
    end
    if is_provisional then
      save(budget)
    else
      local _, settled = settle(budget, id, semaphore.is_rate and weight or 0, not is_known)
      save(budget, field_of(budget, id), text(settled))
    end
    call('ZADD', held, 'GT', expires_at, id)
    if ended[held] then
      call('ZREMRANGEBYSCORE', held, '-inf', text(now))
      ended[held] = nil
    end
    budget.is_empty = false
    outlive(budget, lease)
    semaphore.used = used_of(budget)
    return 1
  end

  -- A claim reserves nothing while it waits.
  local function hold_any(semaphore, ...)
    if not budgets[semaphore.held] then
      hold(semaphore, ...)
    end
  end

  -- Notifies the head of a budget's queue that it should poll, if it is another one than before, or fits sooner.
  local function finish_any(held, queue, alive)
    local budget = budgets[held]
    local may_wait = budget and (budget.head or budget.answered) and waiting_in(queue) > 0
    local head = may_wait and call('ZRANGE', queue, 0, 0)[1]
    if head and head ~= budget.answered and not is_pause(head) then
      local ms = due_for(budget, head)
      if head ~= budget.head or ms and ms < (budget.due or math.huge) then
        tell_to_poll({held = held, queue = queue, used = used_of(budget)}, 0, -math.huge)
      end
    end
    finish(held, queue, alive)
  end

  return free_any, leave_any, advance_any, finish_any, revocation_of, clamp, waiting_in, drop, enter, tell_to_poll,
    grant_any, hold_any, flow_of, last_of, settle, is_reserved
end
