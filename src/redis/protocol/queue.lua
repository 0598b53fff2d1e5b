-- How claims of a contended semaphore are granted, or wait in its queue; see grant.lua.

-- Extends the time for which the waiters in this call count as alive. They are alive, however late
-- their heartbeat arrives, so this happens before the queue advances and removes dead waiters.
local function revive(alive, now, first, last)
  for arg = first, last, 3 do
    local alive_ms = string.match(ARGV[arg + 2], '^%d+')
    if alive_ms then
      call('ZADD', alive, 'XX', text(now + alive_ms), ARGV[arg])
    end
  end
end

-- The operations of one contended semaphore at one instant, with those for claims.
local function contended_semaphore(held, queue, alive, token, now, micros, floor)
  local self = granting_semaphore(held, queue, alive, token, now, micros, floor)

  -- Whether as many waiters as allowed come before a claim with this score.
  local function are_before(max_waiting, score)
    if call('ZCARD', queue) < max_waiting then
      return false
    end
    local last = call('ZRANGE', queue, max_waiting - 1, max_waiting - 1, 'WITHSCORES')
    return max_waiting <= 0 or tonumber(last[2]) <= score
  end

  -- Whether the queue is full for a claim with this score. A full queue is first cleared of up to
  -- 100 dead waiters, at any position.
  local function is_full(max_waiting, score)
    if not are_before(max_waiting, score) then
      return false
    end
    self.clamp(alive)
    for _, id in ipairs(call('ZRANGEBYSCORE', alive, 0, text(now), 'LIMIT', 0, 100)) do
      call('ZREM', queue, id)
      call('ZREM', alive, id)
    end
    return are_before(max_waiting, score)
  end

  -- Joins the queue, or keeps the position there. A head start moves the claim forward. Arrivals
  -- strictly grow, even if the clock is set back. Returns the arrival, or nothing if the queue is
  -- full.
  local function join(id, alive_ms, max_waiting, arrival, head_start)
    local known = call('ZSCORE', queue, id)
    if known then
      return known + head_start
    end
    local last = tonumber(call('ZRANGE', queue, 0, 0, 'REV', 'WITHSCORES')[2]) or 0
    last = math.max(last, -(tonumber(call('ZSCORE', alive, 'arrival')) or 0))
    arrival, head_start = tonumber(arrival), tonumber(head_start)
    if arrival == 0 then
      arrival = math.max(micros, last + 1)
    end
    if is_full(tonumber(max_waiting), arrival - head_start) then
      return
    end
    call('ZADD', queue, text(arrival - head_start), id)
    call('ZADD', alive, text(now + alive_ms), id)
    if head_start > 0 then
      -- Its score does not tell its arrival, and later ones have to be greater.
      call('ZADD', alive, text(-math.max(arrival, last)), 'arrival')
    end
    return arrival
  end

  -- For a claim that does not wait, or no longer: leaves the queue, and grants to the next waiters.
  local function leave(id, used, head)
    if head and call('ZREM', queue, id) == 1 then
      call('ZREM', alive, id)
      used = self.advance(used, true)
    end
    return 0, used
  end

  -- When the head of the queue polls again: when the earliest lease ends, or at once if this call
  -- has granted as much as it may.
  local function recheck_ms()
    if self.granted >= MAX_GRANTED then
      return 0
    end
    local first = call('ZRANGE', held, 0, 0, 'WITHSCORES')
    return first[2] and math.max(first[2] - now, 0) or 0
  end

  -- Whether a permit may be granted now, how many units are held, and the id of the head if one
  -- waits.
  function self.admits(used, id, waits)
    local limit, weight = string.match(id, '^%w+%.%x+%.(%d+)%.(%d+)%.')
    local head
    used, head = self.advance(used)
    -- A claim that can wait is not granted after MAX_GRANTED units: its next poll can grant it.
    local may_grant = not waits or self.granted < MAX_GRANTED
    local is_next = not head or head == id and not waits
    local fits = used + weight <= tonumber(limit) and is_next and may_grant
    local is_admitted = fits or call('ZSCORE', held, id)
    if not is_admitted and not head then
      self.clamp(held)
    end
    return is_admitted, used, head
  end

  -- Grants a permit that is admitted. Returns its token, and how many units are held then.
  function self.take(used, id, head, lease)
    if head == id then
      call('ZREM', queue, id)
      call('ZREM', alive, id)
    end
    local weight = weight_of(id)
    self.granted = self.granted + weight
    return self.grant(id, weight, used, text(now + lease), lease)
  end

  -- Holds the units of a permit that is admitted here and waits at a wider level, for as long as
  -- that waiter counts as alive. Returns how many units are held then.
  function self.keep(used, id, alive_ms, lease)
    local ttl = text(lease * LEASES)
    used = self.hold(id, weight_of(id), used, text(now + alive_ms), ttl)
    if call('PTTL', held) < lease * (LEASES - 1) then
      call('PEXPIRE', held, ttl)
    end
    return used
  end

  -- Releases what a claim has here that another level refuses. If it had something before this
  -- call, the next waiters are granted. Returns how many units are held then.
  function self.release(used, id)
    local waited, freed = call('ZREM', queue, id), call('ZREM', held, id)
    if waited + freed == 0 then
      return used
    end
    call('ZREM', alive, id)
    for unit = 2, weight_of(id) do
      freed = freed + call('ZREM', held, id .. ':' .. unit)
    end
    return (self.advance(used - freed, true))
  end

  -- Waits in the queue, behind the head if there is one. Returns the first item of the answer, and
  -- how many units are held.
  function self.wait(used, id, head, wait, lease)
    local alive_ms, max_waiting, arrival, head_start =
      string.match(wait, '^(%d+) (%d+) (%d+) (%d+)$')
    arrival = join(id, alive_ms, max_waiting, arrival, head_start)
    if not arrival then
      return -1, used
    end
    -- Reading a TTL is cheaper than setting it, and `alive` has no shorter TTL than the queue. It has a
    -- longer one while it remembers a revocation.
    if call('PTTL', queue) < lease * (LEASES - 1) then
      call('PEXPIRE', queue, text(lease * LEASES))
      if call('PTTL', alive) < lease * LEASES then
        call('PEXPIRE', alive, text(lease * LEASES))
      end
    end
    local is_head = call('ZRANGE', queue, 0, 0)[1] == id
    if is_head and head and head ~= id then
      -- Its head start has brought it before a head that does not fit.
      used, head = self.advance(used)
      if call('ZSCORE', held, id) then
        return self.take(used, id, head, lease)
      end
    end
    local recheck = is_head and recheck_ms() or -1
    return {arrival, recheck, tonumber(call('GET', token) or micros - 1)}, used
  end

  -- Whether an operator has revoked a permit that is not new.
  function self.is_revoked(id)
    return call('ZSCORE', alive, revocation_of(id))
  end

  -- Acquires the units of a permit, or a position in the queue. Returns the first item of the
  -- answer, and how many units are held then.
  function self.acquire(used, id, wait, lease)
    local waits, is_admitted, head = wait ~= ''
    is_admitted, used, head = self.admits(used, id, waits)
    if is_admitted then
      return self.take(used, id, head, lease)
    end
    if waits then
      return self.wait(used, id, head, wait, lease)
    end
    return leave(id, used, head)
  end

  return self
end
