-- The part that acquire and release share for a contended semaphore: how units are granted, and how
-- the queue advances.
--
-- A call is for one semaphore or for many, one after the other. KEYS has for each:
--
-- held   unit of a permit -> lease end, ms of the server's clock
-- queue  waiter's permit -> its arrival, microseconds of the server's clock
-- alive  waiter's permit -> until when it counts as alive, ms
-- token  the last token
--
-- ARGV has first the arguments for all semaphores; then for each semaphore the number of its
-- arguments, and these.
--
-- A permit's id has all values that a grant needs: PROCESS.SERIAL.LIMIT.WEIGHT.LEASE. The first unit
-- has the id itself, the others id:2, id:3 and so on.

-- Whether any of the semaphores has waiters. Usually none has, and one call to Redis shows that.
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

-- Units that one call grants from a queue, to bound how long it blocks the server.
local MAX_GRANTED = 1000

-- The operations of one contended semaphore at one instant. Built only for a contended semaphore,
-- because building these functions takes longer than running them.
local function contended_semaphore(held, queue, alive, token, now, micros, floor)
  local self = {}
  local granted = 0

  -- Returns the next token. A counter that has expired starts again at the server's clock, or at
  -- the highest time that the clock has ever shown. Both are higher than every token before, because
  -- fewer tokens were granted than microseconds have passed, so the counter may expire at any time.
  --
  -- Only every fourth token extends the TTL of `held`. That suffices: a permit that is not refreshed
  -- lasts a lease at most, so three permits, each granted before the one before has ended, are over
  -- within four leases of the last extension, which left `held` at least seven leases.
  local function next_token(ttl)
    local new_token = call('INCR', token)
    if new_token == 1 then
      new_token = math.max(micros, floor)
      call('SET', token, text(new_token), 'PX', ttl)
    elseif new_token % 4 == 0 then
      call('PEXPIRE', token, ttl)
      call('PEXPIRE', held, ttl)
    end
    return new_token
  end

  -- Adds the units of a permit to the `used` ones. Returns the permit's token, and how many units are
  -- held then.
  function self.grant(id, weight, used, expires_at, lease)
    local now_used = used + call('ZADD', held, expires_at, id)
    for unit = 2, weight do
      now_used = now_used + call('ZADD', held, expires_at, id .. ':' .. unit)
    end
    local ttl = text(lease * LEASES)
    if used == 0 then
      call('PEXPIRE', held, ttl)
    end
    return next_token(ttl), now_used
  end

  -- Lowers each end that is further ahead than the permit's own lease to one lease from now. Such an
  -- end was written before the clock was set back, and a dead permit or waiter would last too long.
  local function clamp(ends)
    local function is_impossible(member, score)
      local lease = string.match(member, '^%w+%.%x+%.%d+%.%d+%.(%d+)')
      return lease and tonumber(score) > now + lease, lease
    end
    local top = call('ZRANGE', ends, 0, 0, 'REV', 'WITHSCORES')
    if not top[1] or not is_impossible(top[1], top[2]) then
      return
    end
    local members = call('ZRANGEBYSCORE', ends, text(now), '+inf', 'WITHSCORES')
    for at = 1, #members, 2 do
      local impossible, lease = is_impossible(members[at], members[at + 1])
      if impossible then
        call('ZADD', ends, text(now + lease), members[at])
      end
    end
  end

  -- Notifies a process that one of its permits was granted or, with token 0, that the waiter should
  -- poll.
  local function notify(process, serial, new_token, used)
    local prefix = string.match(held, '^[^{]*')
    call('PUBLISH', prefix .. 'wake:' .. process, serial .. ' ' .. text(new_token) .. ' ' .. used)
  end

  -- Grants to the head of the queue while the head fits under its own limit, and removes waiters that
  -- have died. Claims behind the head are not considered, so that light claims do not starve a heavy
  -- one. A grant ends when the waiter would cease to count as alive, unless its process refreshes the
  -- permit: so a process that has just died holds the queue up no longer than its waiter would have.
  -- After MAX_GRANTED units the head is notified to poll, and its poll grants further units.
  -- Returns how many units are held then, and the id of the head if one still waits.
  function self.advance(used)
    while true do
      local id = call('ZRANGE', queue, 0, 0)[1]
      if not id then
        return used
      end
      local process, serial, limit, weight, lease =
        string.match(id, '^(%w+)%.(%x+)%.(%d+)%.(%d+)%.(%d+)$')
      weight, lease = tonumber(weight), tonumber(lease)
      local alive_until = process and tonumber(call('ZSCORE', alive, id) or 0) or 0
      if process and alive_until > now + lease then
        clamp(alive)
        alive_until = now + lease
      end
      local is_alive = alive_until > now
      if is_alive and used + weight > tonumber(limit) then
        clamp(held)
        return used, id
      end
      if is_alive and granted >= MAX_GRANTED then
        notify(process, serial, 0, used)
        return used, id
      end
      call('ZREM', queue, id)
      call('ZREM', alive, id)
      if is_alive then
        granted = granted + weight
        local new_token
        new_token, used = self.grant(id, weight, used, text(alive_until), lease)
        notify(process, serial, new_token, used)
      end
    end
  end

  -- Whether the queue is full. A full queue is first cleared of up to 100 dead waiters, at any
  -- position.
  local function is_full(max_waiting)
    if call('ZCARD', queue) < max_waiting then
      return false
    end
    clamp(alive)
    for _, id in ipairs(call('ZRANGEBYSCORE', alive, '-inf', text(now), 'LIMIT', 0, 100)) do
      call('ZREM', queue, id)
      call('ZREM', alive, id)
    end
    return call('ZCARD', queue) >= max_waiting
  end

  -- Extends the time for which the waiters in this call count as alive. They are alive, however late
  -- their heartbeat arrives, so this happens before the queue advances and removes dead waiters.
  function self.revive(first, last)
    for arg = first, last, 3 do
      local alive_ms = string.match(ARGV[arg + 2], '^%d+')
      if alive_ms then
        call('ZADD', alive, 'XX', text(now + alive_ms), ARGV[arg])
      end
    end
  end

  -- Joins the queue, or keeps the position there. Arrivals strictly grow, even if the clock is set
  -- back. Returns the arrival, or nothing if the queue is full.
  local function join(id, alive_ms, max_waiting, arrival)
    local known = call('ZSCORE', queue, id)
    if known then
      return tonumber(known)
    end
    if is_full(tonumber(max_waiting)) then
      return
    end
    arrival = tonumber(arrival)
    if arrival == 0 then
      local last = call('ZRANGE', queue, 0, 0, 'REV', 'WITHSCORES')[2]
      arrival = math.max(micros, (tonumber(last) or 0) + 1)
    end
    call('ZADD', queue, text(arrival), id)
    call('ZADD', alive, text(now + alive_ms), id)
    return arrival
  end

  -- For a claim that does not wait, or no longer: leaves the queue, and grants to the next waiters.
  local function leave(id, used, head)
    if head and call('ZREM', queue, id) == 1 then
      call('ZREM', alive, id)
      used = self.advance(used)
    end
    return 0, used
  end

  -- When the head of the queue polls again: when the earliest lease ends, or at once if this call
  -- has granted as much as it may.
  local function recheck_ms()
    if granted >= MAX_GRANTED then
      return 0
    end
    local first = call('ZRANGE', held, 0, 0, 'WITHSCORES')
    return first[2] and math.max(first[2] - now, 0) or 0
  end

  -- Acquires the units of a permit, or a position in the queue. Returns the first item of the
  -- answer, and how many units are held then.
  function self.acquire(used, id, wait, lease)
    local limit, weight = string.match(id, '^%w+%.%w+%.(%d+)%.(%d+)%.')
    limit, weight = tonumber(limit), tonumber(weight)
    local alive_ms, max_waiting, arrival = string.match(wait, '^(%d+) (%d+) (%d+)$')
    local head
    used, head = self.advance(used)
    -- A claim that can wait is not granted after MAX_GRANTED units: its next poll can grant it.
    local may_grant = not alive_ms or granted < MAX_GRANTED
    local is_next = not head or head == id and not alive_ms
    if used + weight <= limit and is_next and may_grant or call('ZSCORE', held, id) then
      if head == id then
        call('ZREM', queue, id)
        call('ZREM', alive, id)
      end
      granted = granted + weight
      return self.grant(id, weight, used, text(now + lease), lease)
    end
    if not head then
      clamp(held)
    end

    if not alive_ms then
      return leave(id, used, head)
    end
    arrival = join(id, alive_ms, max_waiting, arrival)
    if not arrival then
      return -1, used
    end
    -- Reading a TTL is cheaper than setting it, and both keys have the same TTL.
    if call('PTTL', alive) < lease * (LEASES - 1) then
      call('PEXPIRE', queue, text(lease * LEASES))
      call('PEXPIRE', alive, text(lease * LEASES))
    end
    local recheck = (head or id) == id and recheck_ms() or -1
    return {arrival, recheck, tonumber(call('GET', token) or micros)}, used
  end

  return self
end

