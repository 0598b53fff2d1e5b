
-- Decides claims if any claim waits, does not fit, or may have been revoked; see acquire.lua.

-- Returns from a claim's terms: for how many ms it counts as alive, how many may wait, its arrival and its head start.
local function wait_of(terms)
  return string.match(terms, ' (%d+) (%d+) (%d+) (%d+)$')
end

-- Builds the functions that decide the claims from the run at `at` on. By the number of a semaphore, `used` contains
-- how many units are held, and `is_contended` whether claims wait or did. Returns the function that decides a claim,
-- and `finish` of `granting`.
local function contended_claims(at, equal, used, is_contended, ended, now, micros, floor, lease, expires_at)
  local is_provisional = tonumber(expires_at) < now + lease
  local free, leave, advance, finish, revocation_of, clamp, waiting_in, drop, enter, tell_to_poll,
    grant, hold, flow_of, last_of = granting(now, micros, floor, ended, is_provisional)
  local ttl, short = text(lease * LEASES), lease * (LEASES - 1)

  -- The waiters in this call are alive, however late their heartbeat arrives, and even if another program has overwritten
  -- `alive`. Note this before a queue advances and removes dead waiters.
  while ARGV[at] do
    local levels = equal
    if equal == 0 then
      levels, at = ARGV[at] + 0, at + 1
    end
    local terms, first = at + 1, at + 1 + levels
    at = first + ARGV[at] * 2 * levels
    for level = 0, levels - 1 do
      local alive_ms = wait_of(ARGV[terms + level])
      for claim = first + 2 * level, alive_ms and at - 1 or 0, 2 * levels do
        local number = ARGV[claim] + 0
        local id = ARGV[claim + 1]
        if is_contended[number] and call('ZSCORE', KEYS[number * 4 - 2], id) then
          call('ZADD', KEYS[number * 4 - 1], text(now + alive_ms), id)
        end
      end
    end
  end

  -- The number of entries before the first waiter: 1 if a pause is the head of the queue.
  local function first_of(level)
    return is_pause(level.head) and 1 or 0
  end

  -- True if `max_waiting` waiters come before a claim with this score.
  local function is_full(level, max_waiting, score)
    local queue, first = level.queue, first_of(level)
    if waiting_in(queue) - first < max_waiting then
      return false
    end
    local at = first + max_waiting - 1
    return max_waiting == 0 or tonumber(call('ZRANGE', queue, at, at, 'WITHSCORES')[2]) <= score
  end

  -- For how many ms a claim does not fit in a budget if `reserved` does not change, or nothing if time alone does not help.
  local function due_at(level, reserved)
    local budget = level.budget
    return budget and rarely().due(budget, level.weight, level.limit, reserved or budget.reserved)
  end

  -- How many ms a semaphore is paused from now on, or nothing.
  local function pause_of(level)
    local left = is_pause(level.head) and (call('ZSCORE', level.alive, level.head) or 0) - now or 0
    return left > 0 and left or nil
  end

  -- Removes up to 100 dead waiters, at any position, and ids of `alive` that are in no queue. An aborted script may
  -- have left such ids.
  local function clear(queue, alive)
    clamp(alive)
    for _, id in ipairs(call('ZRANGEBYSCORE', alive, 0, text(now), 'LIMIT', 0, 100)) do
      if not leave(queue, alive, id) and id ~= last_of[queue] and call('ZCARD', alive) > 1 then
        call('ZREM', alive, id)
      end
    end
  end

  -- Start-time fair queueing (Goyal, Vin and Cheng, 1996): a claim starts when its flow's last one finishes, or at the
  -- virtual time, which is that of the head. So an idle flow saves nothing up, and no new flow comes before a head that
  -- does not fit. Returns the start, and the marks to store in `alive`: the virtual time and the finish tags. `others` is
  -- the finish of claims without a flow, if the queue is fair already.
  local function start_of(level, time, others)
    local queue, alive, flow, cost = level.queue, level.alive, flow_of(level.id, level.queue)
    if others then
      local first = first_of(level)
      time = math.max(time, call('ZRANGE', queue, first, first, 'WITHSCORES')[2] or time)
    end
    local start = time + 1
    if others then
      start = math.max(start, -(call('ZSCORE', alive, flow) or 0))
    end
    start = waiting_in(queue) > 0 and free_tag(queue, start) or start
    return start, {
      text(-time), 'arrival', text(math.min(others or 0, -time)), 'flow:', text(-start - cost), flow
    }
  end

  -- Joins the queue, or keeps the position there. A head start moves the claim forward, unless the queue is fair.
  -- Arrivals strictly grow, even if the clock is set back. Returns the arrival, or nothing if the queue is full even
  -- after dead waiters were removed.
  local function join(level, is_cleared)
    local id, queue, alive = level.id, level.queue, level.alive
    local alive_ms, max_waiting, arrival, head_start = wait_of(level.terms)
    local size = waiting_in(queue)
    local known = size > 0 and call('ZSCORE', queue, id)
    if known then
      return known + head_start
    end
    local tail = size > 0 and call('ZRANGE', queue, 0, 0, 'REV', 'WITHSCORES') or {}
    local mark, _, _, has_flow = call('ZSCORE', alive, 'arrival'), flow_of(id, queue)
    local others, tags = mark and call('ZSCORE', alive, 'flow:'), nil
    -- `alive` still has the marks of an earlier queue, whose waiters have all left. A pause may be left.
    local is_first = last_of[queue] or others and size == first_of(level)
    if is_first then
      mark, others = nil, nil
    end
    local last = math.max(tonumber(tail[2]) or 0, -(mark or 0))
    arrival, head_start = tonumber(arrival), tonumber(head_start)
    if others or has_flow then
      arrival, tags = start_of(level, others and -mark or math.max(micros - 1, last), others)
      arrival = arrival + head_start
    elseif arrival == 0 then
      arrival = math.max(micros, last + 1)
    end
    if is_full(level, tonumber(max_waiting), arrival - head_start) then
      if is_cleared then
        return
      end
      clear(queue, alive)
      return join(level, true)
    end
    enter(queue, alive, id, text(arrival - head_start), text(now + alive_ms))
    if is_first then
      call('ZREMRANGEBYSCORE', alive, text(-REVOKED), '-1')
    end
    if tags then
      -- Forgets the flows that have finished.
      call('ZREMRANGEBYSCORE', alive, tags[1], '-1')
      call('ZADD', alive, unpack(tags))
    elseif head_start > 0 then
      -- The score is not the arrival, and later arrivals must be greater.
      call('ZADD', alive, text(-math.max(arrival, last)), 'arrival')
    end
    return arrival
  end

  -- True if a permit may be granted at a level now. That includes an id that is held already, or that `advance` has
  -- just granted.
  local function is_admitted(level)
    local id, waits = level.id, level.waits
    local head = advance(level)
    level.head = head
    local budget = level.budget
    -- In a semaphore that grants to its head, a head that is left and waits does not fit.
    local is_next = not head or head == id and (budget or not waits)
    if level.used + level.weight <= level.limit and is_next
      or budget and is_reserved(budget, id, now)
      or not budget and level.used > 0 and call('ZSCORE', level.held, id)
    then
      return true
    end
    if not head then
      clamp(level.held)
    end
  end

  -- Releases everything that a claim has at these levels. If it had anything before this call, the next waiters are
  -- granted.
  local function release(levels, first, last)
    for at = first, last do
      local level = levels[at]
      local id = level.id
      local waited = waiting_in(level.queue) > 0 and call('ZSCORE', level.queue, id)
      -- The holder of a permit that comes back may have used all that a budget has reserved for it.
      local used = level.is_granted and level.budget and ' ' .. text(level.weight) or ''
      if free(level, id .. used) > 0 or waited then
        leave(level.queue, level.alive, id)
        for unit = 2, level.units do
          free(level, id .. ':' .. unit)
        end
        advance(level)
      end
    end
  end

  -- Refuses a claim, and releases everything that it has at any level. If the level is paused, the answer reports the
  -- pause instead of `why`. Skips the full level if nothing waits there, because then the claim has nothing there.
  local function refuse(levels, why, at)
    local pause = why ~= -3 and pause_of(levels[at])
    local answer = pause and {-4, at, levels[at].used, pause} or {why, at, levels[at].used}
    -- With waiters before it, the time until a budget has room is not known.
    if why == 0 and not pause and not levels[at].head then
      answer[4] = due_at(levels[at])
    end
    local is_elsewhere = why == 0 and not levels[at].head
    release(levels, 1, is_elsewhere and at - 1 or at)
    release(levels, at + 1, #levels)
    return answer
  end

  -- Extends the TTLs of a queue in which a claim has a place. Reading a TTL is cheaper than setting it. That of `alive` is
  -- longer while it contains a revocation, and shorter if another program has overwritten it.
  local function keep_place(level)
    local queue, alive = level.queue, level.alive
    for _, key in ipairs({alive, queue}) do
      if call('PTTL', key) < short then
        call('PEXPIRE', key, ttl)
      end
    end
  end

  -- Waits in the queue of a level, behind the head if another claim waits. Returns the arrival, the time until the next poll,
  -- the last token, and the rest of a pause; or nothing if the queue is full.
  local function wait_at(level)
    local arrival = join(level)
    if not arrival then
      return
    end
    local queue, alive, id, head = level.queue, level.alive, level.id, level.head
    keep_place(level)
    local is_head = call('ZRANGE', queue, 0, 0)[1] == id
    if is_head and head and head ~= id then
      -- Its head start has put it before a head that does not fit.
      level.head = advance(level)
      if not level.budget and level.used > 0 and call('ZSCORE', level.held, id) then
        -- `advance` has granted it. The next poll continues from there.
        return arrival, 0, grant(level, id, level.weight, expires_at, lease)
      end
    end
    -- Polls at once if this call has reached MAX_ADVANCED, and otherwise at the end of a pause.
    local pause = pause_of(level)
    local recheck, budget = level.is_stuck and 0 or pause or -1, level.budget
    if budget then
      if is_head then
        -- A reservation that ends may make room too.
        local first = call('ZRANGEBYSCORE', level.held, text(now + 1), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
        local ends = first and first - now or math.huge
        budget.answered, budget.due = id, due_at(level)
        local soonest = math.min(budget.due or math.huge, ends)
        recheck = soonest < math.huge and soonest or recheck
      end
      return arrival, recheck, 0, pause or -1, due_at(level, 0) or -1
    end
    if is_head then
      local ends = level.used > 0 and call('ZRANGE', level.held, 0, 0, 'WITHSCORES')[2]
      recheck = ends and advanced < MAX_ADVANCED and math.max(ends - now, 0) or 0
    end
    return arrival, recheck, tonumber(call('GET', level.token) or micros - 1), pause
  end

  -- Holds the first levels of a claim for as long as the waiter at level `at` counts as alive, and releases the levels
  -- behind `at`. The claim has units there only if its units at `at` have expired or the key was paused. Then it starts
  -- again from `at`. It keeps its places in the queues of earlier budgets, and reservations that were granted before.
  local function hold_up_to(levels, last, at)
    local alive_ms = wait_of(levels[at].terms)
    for number = 1, #levels do
      local level = levels[number]
      local keeps = number > at and level.budget and is_reserved(level.budget, level.id, now)
      if number <= last or keeps then
        hold(level, level.id, level.weight, text(now + alive_ms), ttl)
        if not level.budget and call('PTTL', level.held) < short then
          call('PEXPIRE', level.held, ttl)
        elseif level.budget and waiting_in(level.queue) > 0 and call('ZSCORE', level.queue, level.id) then
          keep_place(level)
        end
      elseif number > at then
        release(levels, number, number)
      end
    end
  end

  -- Waits in the queue of a level, and holds the narrower ones. Returns the answer.
  local function wait(levels, at)
    local arrival, recheck, last_token, pause, earliest = wait_at(levels[at])
    if not arrival then
      return refuse(levels, -1, at)
    end
    hold_up_to(levels, at - 1, at)
    return {-2, at, levels[at].used, arrival, recheck, last_token, pause, earliest}
  end

  -- Waits for the end of the pause of a level whose units the claim holds. It keeps them, and takes no place in the queue.
  -- Returns the answer.
  local function wait_with_units(levels, at, pause)
    hold_up_to(levels, at, at)
    return {-2, at, levels[at].used, 0, pause, 0, pause, levels[at].budget and -1 or nil}
  end

  -- Returns true if the claim is admitted at all levels, else false and the answer to it.
  local function admit(levels)
    for at, level in ipairs(levels) do
      -- An acquire that was sent before the revocation may arrive after it.
      if level.is_known and call('ZSCORE', level.alive, revocation_of(level.id)) then
        return false, refuse(levels, -3, at)
      end
    end
    for at, level in ipairs(levels) do
      -- A permit that comes back has lost what it had reserved, and reserves nothing again.
      if level.is_granted and level.budget then
        level.is_done = true
      elseif not is_admitted(level) then
        return false, level.waits and wait(levels, at) or refuse(levels, 0, at)
      end
      -- A claim can hold units of a paused level: they were granted before the pause. It may wait for a wider level, or its
      -- answer was lost. A pause takes no units of a permit that comes back.
      local pause = not level.is_granted and pause_of(level)
      if pause then
        return false, level.waits and wait_with_units(levels, at, pause) or refuse(levels, 0, at)
      end
    end
    return true
  end

  -- Decides the claim whose terms and ids begin at these arguments. Extends the answer, and returns its new size.
  return function(terms, first, count, answer, size)
    local levels = {}
    for level = 1, count do
      local arg, own = first + 2 * level - 2, ARGV[terms + level - 1]
      local number = ARGV[arg] + 0
      local key, id = number * 4, ARGV[arg + 1]
      local limit, weight = string.match(id, '^%w+%.%w+%.%w+%.%w+%.(%w+)%.(%w+)%.')
      local budget = budgets and budgets[KEYS[key - 3]]
      levels[level] = {
        number = number, held = KEYS[key - 3], queue = KEYS[key - 2], alive = KEYS[key - 1],
        token = KEYS[key], used = used[number], id = id, limit = tonumber(limit, 36),
        weight = tonumber(weight, 36), terms = own, waits = wait_of(own), budget = budget,
        units = budget and 1 or tonumber(weight, 36),
        is_known = string.find(own, '^%-') ~= nil, is_granted = string.find(own, '^%-2') ~= nil,
        head = false, is_stuck = false, is_done = false
      }
    end
    local is_granted, refusal = admit(levels)
    answer[size + 1] = refusal
    for at, level in ipairs(levels) do
      if is_granted then
        local id = level.id
        answer[size + at * 2 - 1] = level.is_done and 1 or grant(level, id, level.weight, expires_at, lease)
        if level.head == id then
          drop(level.queue, level.alive, id)
        end
        answer[size + at * 2] = level.used
      end
      used[level.number] = level.used
      is_contended[level.number] = is_contended[level.number] or waiting_in(level.queue) > 0
    end
    return size + (is_granted and count * 2 or 1)
  end, finish
end
