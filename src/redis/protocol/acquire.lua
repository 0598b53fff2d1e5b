
-- acquire: for each claim, one after the other: grants it units of each of its semaphores, all or none;
-- else it joins a queue, if it may wait.
--
-- A claim has levels, mostly one, from the narrowest limit to the widest. Where one is full, a claim that
-- does not wait there gets nothing: it is decided before anything is granted, so nobody ever sees a
-- unit of it. A claim that waits there joins that queue, and holds the units of the narrower levels
-- for as long as it counts as alive. Everybody goes from narrow to wide, so there is no deadlock.
--
-- Promises: at any instant of the server's clock, at most `limit` units are held. An id counts once,
-- however often it is sent, and keeps its position in the queue. Every permit gets a token greater
-- than those before it. A call that arrives after its deadline changes nothing.
--
-- KEYS  for each semaphore of these claims, once, held, queue, alive, token; see grant.lua
-- ARGV  1 lease     ms
--       2 deadline  ms of the server's clock, after which the call changes nothing
--       3 floor     microseconds, the least token for a semaphore that has none yet
--       4 lasts     ms, how long a grant lasts unless it is refreshed: a lease, or less
--       5 levels    of each claim; 0 if their numbers differ
--       and for each claim, if they differ, its number of levels; and four for each of its levels:
--         number  of the semaphore, from 1
--         id      the permit's id
--         limit   how many units may be held together; 0 if the permit has several units itself, so
--                 that it never takes the fast path; -1 if it was sent before, so that an operator may
--                 have revoked it
--         wait    empty if the claim does not wait; else `ALIVE MAX_WAITING ARRIVAL HEAD_START`: for
--                 how many ms the waiter counts as alive, how many claims may wait, the arrival that
--                 an earlier call returned, or 0, and the head start in microseconds
-- Returns the server's time in ms, alone if the call is late; and for each claim, if it is granted, two
-- items for each level: token, units held now. Else one item:
--         {0, level, units held now}     there is no room at that level, from 1
--         {-1, level, units held now}    the queue of that level is full
--         {-3, level, units held now}    it was revoked at that level
--         {-2, level, units held now, arrival, recheck_ms, last_token}
--                                        it waits there. If recheck_ms is not -1, it should poll again
--                                        then: it is the head, and the earliest lease ends; or more of the
--                                        queue has died than one call removes. It holds nothing there, so
--                                        no token up to last_token is its own

-- Locals are faster than globals.
local KEYS, ARGV = KEYS, ARGV
local now, micros = clock()
if now > tonumber(ARGV[2]) then
  return {now}
end
local lease, floor, equal = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[5])
local expired_before, expires_at, ttl = text(now), text(now + ARGV[4]), text(lease * LEASES)
-- A grant that lasts less than a lease may be a whole one since, if the call was delayed: its end is not moved back.
local is_provisional = tonumber(ARGV[4]) < lease
local anything_waits = any_queue(KEYS)

-- For each semaphore how many units are held, and whether claims wait.
local used, is_contended = {0}, {}
for key = 1, #KEYS, 4 do
  local number, held = (key + 3) / 4, KEYS[key]
  local count = call('ZCARD', held)
  -- The first write is a removal: a server whose memory is full accepts other writes only after one.
  if count > 0 or key == 1 then
    count = count - call('ZREMRANGEBYSCORE', held, '-inf', expired_before)
  end
  used[number] = count
  if anything_waits then
    is_contended[number] = call('EXISTS', KEYS[key + 1]) == 1
  end
end

-- Of which semaphores this call has extended the TTL.
local is_extended
local answer, size, at, decide = {now}, 1, 6, nil
while ARGV[at] do
  local begin, levels, is_free = at, equal, true
  if equal == 0 then
    levels, at = ARGV[at] + 0, at + 1
  end
  local first = at
  at = first + levels * 4
  for arg = first, at - 1, 4 do
    local number = ARGV[arg] + 0
    is_free = is_free and not is_contended[number] and ARGV[arg + 2] - used[number] > 0
  end
  if is_free then
    -- The fast path: one unit of semaphores for which nothing waits. The same as `grant`.
    for arg = first, at - 1, 4 do
      local number = ARGV[arg] + 0
      local held, token, count = KEYS[number * 4 - 3], KEYS[number * 4], used[number]
      local added = is_provisional and call('ZADD', held, 'GT', expires_at, ARGV[arg + 1])
        or call('ZADD', held, expires_at, ARGV[arg + 1])
      local new_token = call('INCR', token)
      local is_due = new_token % 4 == 0 and not (is_extended and is_extended[number])
      if new_token == 1 then
        new_token = math.max(micros, floor)
        call('SET', token, text(new_token), 'PX', ttl)
      elseif is_due then
        is_extended = is_extended or {}
        is_extended[number] = true
        call('PEXPIRE', token, ttl)
      end
      if count == 0 or is_due then
        call('PEXPIRE', held, ttl)
      end
      used[number] = count + added
      answer[size + 1], answer[size + 2] = new_token, count + added
      size = size + 2
    end
  else
    decide = decide
      or contended_claims(begin, equal, used, is_contended, now, micros, floor, lease, expires_at)
    size = decide(first, levels, answer, size)
  end
end
return answer
