-- acquire: for each claim of each semaphore, one after the other: grants the units of a permit if
-- they fit under its limit and nothing waits before it; else joins the queue, if the claim may wait.
--
-- Promises: at any instant of the server's clock, at most `limit` units are held. An id counts once,
-- however often it is sent, and keeps its position in the queue. Every permit gets a token greater
-- than those before it. A call that arrives after its deadline changes nothing.
--
-- KEYS  for each semaphore held, queue, alive, token; see grant.lua
-- ARGV  1 lease     ms
--       2 deadline  ms of the server's clock, after which the call changes nothing
--       3 floor     microseconds, the least token for a semaphore that has none yet
--       and for each semaphore, three for each of its claims:
--         id     the permit's id
--         limit  how many units may be held together; 0 if the permit has several units itself, so
--                that it never takes the fast path; -1 if it was sent before, so that an operator may
--                have revoked it
--         wait   empty if the claim does not wait; else `ALIVE MAX_WAITING ARRIVAL HEAD_START`: for
--                how many ms the waiter counts as alive, how many claims may wait, the arrival that
--                an earlier call returned, or 0, and the head start in microseconds
-- Returns the server's time in ms, alone if the call is late, and for each claim two items:
--         token, units held now     the claim is granted
--         0, units held now         there is no room
--         -1, units held now        the queue is full
--         -3, units held now        it was revoked
--         {arrival, recheck_ms, last_token}, units held now
--                                   the claim waits. If recheck_ms is not -1, the claim is the head
--                                   and should poll again then, when the earliest lease ends. The
--                                   claim holds nothing, so no token up to last_token is its own

local now, micros = clock()
if now > tonumber(ARGV[2]) then
  return {now}
end
local lease, floor = tonumber(ARGV[1]), tonumber(ARGV[3])
local expired_before, expires_at, ttl = text(now), text(now + lease), text(lease * LEASES)
local anything_waits = any_queue(KEYS)

local answer, at = {now}, 4
for key = 1, #KEYS, 4 do
  local held, queue, alive, token = KEYS[key], KEYS[key + 1], KEYS[key + 2], KEYS[key + 3]
  local used = call('ZCARD', held)
  -- The first write is a removal: a server whose memory is full accepts other writes only after one.
  if used > 0 or key == 1 then
    used = used - call('ZREMRANGEBYSCORE', held, '-inf', expired_before)
  end
  local is_contended = anything_waits and call('EXISTS', queue) == 1

  local last, semaphore = at + ARGV[at], nil
  for arg = at + 1, last, 3 do
    local id, first = ARGV[arg], nil
    if not is_contended and used < tonumber(ARGV[arg + 1]) then
      -- The fast path: one unit of a semaphore for which nothing waits. The same as `grant`.
      local added = call('ZADD', held, expires_at, id)
      first = call('INCR', token)
      if first == 1 then
        first = math.max(micros, floor)
        call('SET', token, text(first), 'PX', ttl)
      elseif first % 4 == 0 then
        call('PEXPIRE', token, ttl)
      end
      if used == 0 or first % 4 == 0 then
        call('PEXPIRE', held, ttl)
      end
      used = used + added
    else
      if not semaphore then
        semaphore = contended_semaphore(held, queue, alive, token, now, micros, floor)
        revive(alive, now, arg, last)
      end
      if ARGV[arg + 1] == '-1' and semaphore.is_revoked(id) then
        -- An acquire from before the revocation may have come after it.
        first, used = -3, semaphore.release(used, id)
      else
        first, used = semaphore.acquire(used, id, ARGV[arg + 2], lease)
      end
      is_contended = call('EXISTS', queue) == 1
      anything_waits = true
    end
    answer[#answer + 1], answer[#answer + 2] = first, used
  end
  at = last + 1
end
return answer
