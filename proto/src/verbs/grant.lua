-- Grants units of a contended semaphore, and advances its queue.
--
-- A call is for one or more semaphores, one after the other. KEYS has for each:
--
-- held   unit of a permit -> lease end, ms of the server's clock
-- queue  waiter's permit -> its arrival minus its head start, microseconds of the server's clock. In a fair queue: its
--        start tag, see `start_of` of queue.lua. A queue is fair from its first claim with a flow until it is empty.
--        The id of a pause -> 0; see pause.lua
-- alive  waiter's permit -> until when it counts as alive, ms
--        `arrival` -> the last arrival, if waiters had head starts. Negative, so it cannot be read as an end
--        `revoked:PROCESS.PERMIT` -> until when the revocation is stored, ms, negative and below -REVOKED
--        in a fair queue `flow:FLOW` -> the finish tag of the flow, negative. Claims without a flow always have one
--        in a fair queue `arrival` -> the virtual time, negative
-- token  the last token
--
-- ARGV has first the arguments for all semaphores; then, for each semaphore, the number of its arguments and the
-- arguments.
--
-- A permit's id contains all values that a grant needs, each at a fixed place, and the numbers in base 36:
-- PROCESS.PERMIT.LEASE.GENERATION.LIMIT.WEIGHT.LEASE_MS.SINCE.SHARE.FLOW.LABEL. Only SHARE, FLOW and LABEL may be empty.
-- PERMIT.LEASE.GENERATION names the id within its process. The first unit has the id itself, the others have id:2, id:3
-- and so on.

-- The budgets by their `held`, and the amount that a unit of an id adds to tags. Only the scripts with budget.lua have them.
local budgets, unit_cost

-- True if any of the semaphores has waiters. Usually none has, and one call to Redis shows that.
local function any_queue(keys)
  if #keys == 4 then
    return call('EXISTS', keys[2]) == 1
  end
  local queues = {keys[2]}
  for key = 6, #keys, 4 do
    queues[#queues + 1] = keys[key]
  end
  return call('EXISTS', unpack(queues)) > 0
end

-- Bounds how long one call blocks the server. `advanced` counts the units that it grants to waiters and the dead
-- waiters that it removes. `looked` counts the waiters that it visits because one before them has left.
local MAX_ADVANCED = 500
local advanced, looked = 0, 0

-- The amount that a unit adds to the tags of a flow of share 1. Every share is exact to one percent. Tags are free for
-- newcomers while the shares of all waiting flows add up to less than this.
local UNIT = 100000

-- The scores of revocations are below those of arrivals and tags.
local REVOKED = 5000000000000000

-- Returns the first tag from `tag` on that no waiter has, because two waiters with one tag would be served in the order
-- of their ids. Passes a run of tags in steps that double, and then halve.
local function free_tag(queue, tag)
  local size, growth = 1, 2
  repeat
    local last = call('ZRANGEBYSCORE', queue, text(tag), '+inf', 'WITHSCORES', 'LIMIT', size - 1, 1)[2]
    if tonumber(last) == tag + size - 1 then
      tag = tag + size
    else
      growth = 0.5
    end
    size = size * growth
  until size < 1
  return tag
end

-- True for the entry of a pause, see pause.lua. No other id has its flow.
local function is_pause(id)
  return id and string.find(id, '.!.', 1, true) ~= nil
end

-- Sends a message to the process of a permit.
local function notify(held, process, message)
  call('PUBLISH', string.match(held, '^[^{]*') .. 'wake:' .. process, message)
end

-- A cluster's node that gives a slot away runs a script only if all of its keys are there. It aborts the script when
-- the script names a key that it has emptied. So the last member of a set stays until `finish`, after the last use of
-- the set.

-- Counts the held units of a contended semaphore, and removes units that have ended. If all have ended, they stay, and
-- the second result is true. budget.lua replaces this by a function that takes two more arguments.
local function count_held(key, now)
  local held = KEYS[key]
  local count = call('ZCARD', held)
  if count > 0 and not call('ZRANGEBYSCORE', held, text(now + 1), '+inf', 'LIMIT', 0, 1)[1] then
    -- The first write is a removal: a server whose memory is full accepts other writes only after one.
    call('ZREM', held, '')
    return 0, true
  end
  return count - call('ZREMRANGEBYSCORE', held, '-inf', text(now))
end

-- Builds the operations at one instant. They take a semaphore as a table of its keys and of `used`, the number of units
-- held. If `ended` contains the `held` of a semaphore, all its units have ended, and are still in the set. With
-- `is_provisional` the call is for less than a whole lease, so it moves no end back. Built only for contended semaphores,
-- because building these functions takes longer than running them. Returns the functions for all callers first, and then
-- those that only `contended_claims` needs.
local function granting(now, micros, floor, ended, is_provisional)
  -- By queue: the number of waiting claims, and the id of the last claim that has left. That id is still in the set.
  local sizes, last_of = {}, {}
  -- By queue: the least score of a claim that has left without a grant.
  local departed_score = {}

  local function waiting_in(queue)
    local size = sizes[queue] or call('ZCARD', queue)
    sizes[queue] = size
    return size
  end

  -- Takes a waiter from the queue.
  local function drop(queue, alive, id)
    local size = waiting_in(queue)
    if size > 1 then
      call('ZREM', queue, id)
      call('ZREM', alive, id)
    else
      last_of[queue] = id
    end
    sizes[queue] = size - 1
  end

  -- Adds a waiter to the queue.
  local function enter(queue, alive, id, score, alive_until)
    local size, last = waiting_in(queue), last_of[queue]
    call('ZADD', queue, score, id)
    call('ZADD', alive, alive_until, id)
    if last and last ~= id then
      call('ZREM', queue, last)
      call('ZREM', alive, last)
    end
    sizes[queue], last_of[queue] = size + 1, nil
  end

  -- Takes a unit from a semaphore. If it is the last one, and claims wait or did, its end is set to 0 instead. Returns
  -- 1 if it was held, else 0.
  local function free(semaphore, unit)
    local held, queue, used = semaphore.held, semaphore.queue, semaphore.used
    local is_last = used == 1 and (sizes[queue] ~= 0 or last_of[queue])
    local freed = is_last and call('ZADD', held, 'XX', 'CH', 0, unit) or used > 0 and call('ZREM', held, unit) or 0
    semaphore.used, ended[held] = used - freed, ended[held] or is_last and freed == 1 or nil
    return freed
  end

  -- Removes the last members that were kept. The script does not use the semaphore after this.
  local function finish(held, queue, alive)
    if ended[held] then
      call('ZREMRANGEBYSCORE', held, '-inf', text(now))
    end
    if last_of[queue] then
      -- Only revocations outlast the queue.
      call('ZREM', queue, last_of[queue])
      call('ZREMRANGEBYSCORE', alive, text(-REVOKED), '+inf')
    end
  end

  -- Returns the member of the finish tag of an id's flow, what the claim adds to this tag, and whether the id names a
  -- flow.
  local function flow_of(id, queue)
    local weight, share, flow = string.match(id, '^%w+%.%w+%.%w+%.%w+%.%w+%.(%w+)%.%w+%.%w+%.(%w*)%.([^.]*)%.')
    local units, turns = weight and tonumber(weight, 36) or 0, tonumber(share or '', 36)
    local cost = (unit_cost and unit_cost(queue, id) or UNIT) * units / (turns or 1)
    return 'flow:' .. (flow or ''), math.ceil(cost), turns ~= nil
  end

  -- Takes a waiter from the queue without a grant. Returns true if it was there. In a fair queue the later waiters of
  -- its flow move up, each to the current finish of the one before it. The finish of the flow moves too, unless some of
  -- these waiters are behind MAX_ADVANCED others. No waiter moves before the virtual time, for example behind claims
  -- that came before the first flow.
  local function leave(queue, alive, id)
    local start = waiting_in(queue) > 0 and call('ZSCORE', queue, id)
    if not start then
      return false
    end
    departed_score[queue] = math.min(start, departed_score[queue] or start)
    local flow, cost = flow_of(id, queue)
    local finish = call('ZSCORE', alive, flow)
    drop(queue, alive, id)
    if not finish or waiting_in(queue) == 0 then
      return true
    end
    local slot = math.max(start, -(call('ZSCORE', alive, 'arrival') or 0))
    local is_last, most = start + cost + finish == 0, MAX_ADVANCED - looked
    local later = is_last and {}
      or call('ZRANGEBYSCORE', queue, text(slot), '+inf', 'WITHSCORES', 'LIMIT', 0, most)
    looked = looked + #later / 2
    for at = 1, #later, 2 do
      local other, its_cost = flow_of(later[at], queue)
      if other == flow then
        local tag = math.min(later[at + 1], free_tag(queue, slot))
        call('ZADD', queue, text(tag), later[at])
        slot = tag + its_cost
      end
    end
    if is_last or #later < 2 * most then
      call('ZADD', alive, text(-slot), flow)
    end
    return true
  end

  -- Returns the member under which the revocation of a permit is stored. All ids of its leases have it in common.
  local function revocation_of(id)
    return 'revoked:' .. string.match(id, '^%w+%.%w+')
  end

  -- Holds the units of a permit. If the permit is held already, moves their end, but with `is_short` never back: an
  -- aborted script may have left a granted claim in the queue. A late or repeated acquire does not take back units that
  -- the permit has released.
  local function hold(semaphore, id, weight, expires_at, ttl, is_short)
    local held, used = semaphore.held, semaphore.used
    if is_short or is_provisional then
      expires_at = text(math.max(expires_at, tonumber(used > 0 and call('ZSCORE', held, id) or 0)))
    end
    local added = call('ZADD', held, expires_at, id)
    if ended[held] then
      -- Another unit keeps the key now. The old units of this permit had ended.
      call('ZREMRANGEBYSCORE', held, '-inf', text(now))
      ended[held], added = nil, 1
    end
    local now_used = used + added
    for first = 2, weight, 1000 do
      local units = added == 1 and {} or {'XX'}
      for unit = first, math.min(first + 999, weight) do
        local size = #units
        units[size + 1], units[size + 2] = expires_at, id .. ':' .. unit
      end
      now_used = now_used + call('ZADD', held, unpack(units))
    end
    if used == 0 then
      call('PEXPIRE', held, ttl)
    end
    semaphore.used = now_used
  end

  -- Holds the units of a permit. Returns its token. A counter that has expired starts again at the server's clock, or
  -- at the highest time that the clock has ever shown. Both are higher than every earlier token, because fewer tokens
  -- were granted than microseconds have passed. So the counter may expire at any time. A counter that is far below the
  -- clock is new: this `INCR` has created it, or an earlier script was aborted right after its `INCR`.
  --
  -- Only every fourth token extends the TTL of `held`. This is enough: a permit that is not refreshed lasts a lease at
  -- most. So three permits, each granted before the previous one has ended, are over within four leases of the last
  -- extension, which left `held` at least seven leases.
  local function grant(semaphore, id, weight, expires_at, lease, is_short)
    local token, ttl = semaphore.token, text(lease * LEASES)
    -- First, because it fails if another program has overwritten the counter. Then nothing is granted.
    local new_token = call('INCR', token)
    hold(semaphore, id, weight, expires_at, ttl, is_short)
    if new_token < micros / 2 then
      new_token = math.max(micros, floor)
      call('SET', token, text(new_token), 'PX', ttl)
    elseif new_token % 4 == 0 then
      call('PEXPIRE', token, ttl)
      call('PEXPIRE', semaphore.held, ttl)
    end
    return new_token
  end

  -- Lowers each end that is more than the permit's own lease ahead to one lease from now. Such an end was written
  -- before the clock was set back, and a dead permit or waiter would last too long.
  local function clamp(ends)
    -- Checks the last end first. Usually it is possible, and so are all others.
    local members, at, is_all = call('ZRANGE', ends, 0, 0, 'REV', 'WITHSCORES'), 1, false
    while members[at] do
      local lease = tonumber(string.match(members[at], '^%w+%.%w+%.%w+%.%w+%.%w+%.%w+%.(%w+)') or '', 36)
      local is_impossible = lease and tonumber(members[at + 1]) > now + lease
      if is_all and is_impossible then
        call('ZADD', ends, text(now + lease), members[at])
      elseif not is_all and not is_impossible then
        return
      end
      at = at + 2
      if not is_all then
        members, at = call('ZRANGEBYSCORE', ends, text(now), '+inf', 'WITHSCORES'), 1
        is_all = true
      end
    end
  end

  -- Notifies the claim at a place of the queue that it should poll, if its score is above `score`.
  local function tell_to_poll(semaphore, place, score)
    local waiter = call('ZRANGE', semaphore.queue, place, place, 'WITHSCORES')
    local process, name = string.match(waiter[1] or '', '^(%w+)%.(%w+%.%w+%.%w+)%.')
    if process and tonumber(waiter[2]) > score then
      notify(semaphore.held, process, name .. ' 0 ' .. semaphore.used)
    end
  end

  -- Grants to the head of the queue while the head fits under its own limit, and removes dead waiters. Claims behind
  -- the head are not considered, so that light claims do not starve a heavy one. A grant ends when the waiter would no
  -- longer count as alive, unless its process refreshes the permit. So a process that has just died holds up the queue
  -- no longer than its waiter would have. The process of a granted waiter is notified of the token.
  --
  -- After MAX_ADVANCED grants and removals the head is notified of token 0. It then polls, which advances the queue
  -- further. A dead head cannot poll, so every poll of a waiter advances the queue instead (`is_stuck`). Returns the id
  -- of the head if one still waits.
  local function advance(semaphore)
    local queue, alive = semaphore.queue, semaphore.alive
    while waiting_in(queue) > 0 do
      local id = call('ZRANGE', queue, 0, 0)[1]
      local process, name, limit, weight, lease =
        string.match(id, '^(%w+)%.(%w+%.%w+%.%w+)%.(%w+)%.(%w+)%.(%w+)%.[^:]*$')
      if process then
        limit, weight, lease = tonumber(limit, 36), tonumber(weight, 36), tonumber(lease, 36)
      end
      local alive_until = process and tonumber(call('ZSCORE', alive, id) or 0) or 0
      if process and alive_until > now + lease then
        alive_until = now + lease
        call('ZADD', alive, text(alive_until), id)
        clamp(alive)
      end
      local is_alive = alive_until > now
      if is_alive and semaphore.used + weight > limit then
        clamp(semaphore.held)
        if departed_score[queue] and is_pause(id) then
          -- Only the first waiter was notified of the pause. If it has left, the next one polls.
          tell_to_poll(semaphore, 1, departed_score[queue])
          departed_score[queue] = nil
        end
        return id
      end
      local is_over, new_token = advanced >= MAX_ADVANCED, 0
      if not is_over and not is_alive then
        leave(queue, alive, id)
      elseif not is_over then
        new_token = grant(semaphore, id, weight, text(alive_until), lease, true)
        drop(queue, alive, id)
        advanced = advanced + weight
      end
      if is_alive then
        notify(semaphore.held, process, name .. ' ' .. text(new_token) .. ' ' .. semaphore.used)
      else
        advanced = advanced + 1
      end
      if is_over then
        semaphore.is_stuck = not is_alive
        return id
      end
    end
  end

  return free, leave, advance, finish, revocation_of, clamp, waiting_in, drop, enter, tell_to_poll,
    grant, hold, flow_of, last_of
end
