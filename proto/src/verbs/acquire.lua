
-- acquire: decides claims, one after the other. Grants a claim units of all of its semaphores, or of none. A claim that is
-- not granted joins a queue, if it may wait.
--
-- A claim has levels, usually one, from the narrowest limit to the widest. If a level is full and the claim does not
-- wait there, the claim gets nothing. This is decided before anything is granted, so no other client ever sees a unit
-- of it. A claim that waits joins the queue of that level, and holds the units of the narrower levels for as long as it
-- counts as alive. All claims go from narrow to wide, so no deadlock is possible.
--
-- Promises: at any instant of the server's clock, at most `limit` units are held. An id counts once, however often it
-- is sent, and keeps its position in the queue. Each permit gets a token greater than all earlier ones. A call that
-- arrives after its deadline changes nothing.
--
-- KEYS  held, queue, alive, token, once for each semaphore of these claims; see grant.lua. For a budget: see budget.lua
-- ARGV  1 lease     ms
--       2 deadline  ms of the server's clock, after which the call changes nothing
--       3 floor     microseconds, the least token for a semaphore that has none yet
--       4 lasts     ms, how long a grant lasts unless it is refreshed: a lease, or less
--       5 levels    the number of levels of each claim; 0 if the claims differ
--       and for each run of claims with the same terms: their number of levels, if argument 5 is 0; the number of
--       claims; for each level its
--         terms   LIMIT, or `LIMIT ALIVE MAX_WAITING ARRIVAL HEAD_START` if the claim waits there. For the claim of a rate
--                 `LIMIT rate`, and the rest.
--                 LIMIT: the most units that may be held together. The ids have it too, so three numbers up to 0 have other
--                 meanings, and keep the claim off the fast path. 0: a permit of several units, except of a budget.
--                 -1: it was sent before, so an operator may have revoked it. -2: its caller holds the permit, which the
--                 server may lack, so a pause does not take units that it still has.
--                 ALIVE: for how many ms the waiter counts as alive. MAX_WAITING: how many claims may wait.
--                 ARRIVAL: the arrival that an earlier call returned, or 0. HEAD_START: in microseconds
--       and for each level of each claim
--         number  of the semaphore, from 1
--         id      the permit's id
-- Returns the server's time in ms, alone if the call is late; and for each claim, if it is granted, two
-- items for each level: token, or 1 for a budget; units held now. Else one item:
--         {0, level, units held now}     that level is full; levels count from 1. For a budget that no claim waits for, a
--                                        fourth item has the time in ms after which the claim fits by time alone, if it
--                                        does
--         {-1, level, units held now}    the queue of that level is full
--         {-3, level, units held now}    it was revoked at that level
--         {-4, level, units held now, pause_ms}
--                                        that level is paused for this time
--         {-2, level, units held now, arrival, recheck_ms, last_token, pause_ms}
--                                        it waits there. If recheck_ms is not -1, it should poll again
--                                        after that time: it is the head, and the earliest lease ends then;
--                                        or more waiters have died than one call removes; or a pause ends. It
--                                        holds nothing there, so no token up to last_token is its own.
--                                        pause_ms follows only if the level is paused: for this time. For a budget it
--                                        always follows, -1 without a pause, and then an eighth item: the time in ms for
--                                        which the claim cannot be granted, whatever is settled, or -1

-- Locals are faster than globals. Text becomes a number only where needed, because the conversion takes as long as a call.
local KEYS, ARGV = KEYS, ARGV
local now, micros = clock()
if now > ARGV[2] + 0 then
  return {now}
end
local equal, expires_at, ttl = ARGV[5] + 0, text(now + ARGV[4]), text(ARGV[1] * LEASES)
local anything_waits = any_queue(KEYS)

-- For each semaphore, the number of held units, and true if claims wait. See `granting` for `ended`.
local used, is_contended, ended = {0}, {}, {}
for key = 1, #KEYS, 4 do
  local number, held = (key + 3) / 4, KEYS[key]
  if anything_waits and (#KEYS == 4 or call('EXISTS', KEYS[key + 1]) == 1) then
    is_contended[number] = true
    used[number], ended[held] = count_held(key, now, true)
  elseif budgets and is_hash(KEYS[key + 3]) then
    used[number] = count_held(key, now)
  else
    local count = call('ZCARD', held)
    -- The first write is a removal: a server whose memory is full accepts other writes only after one.
    if count > 0 or key == 1 then
      count = count - call('ZREMRANGEBYSCORE', held, '-inf', text(now))
    end
    used[number] = count
  end
end

local answer, size, at, decide, finish = {now}, 1, 6, nil, nil
while ARGV[at] do
  local run, levels = at, equal
  if equal == 0 then
    levels, at = ARGV[at] + 0, at + 1
  end
  local terms, width, claim = at + 1, 2 * levels, at + 1 + levels
  at = claim + ARGV[at] * width
  while claim < at do
    -- The number of claims for these semaphores that fit, at first more than can follow; 0 or less if anything waits.
    local free, stop = at, claim + width
    for level = 0, levels - 1 do
      local number, limit = ARGV[claim + 2 * level] + 0, ARGV[terms + level]
      local room = (tonumber(limit) or string.match(limit, '^%-?%d+')) - used[number]
      local budget = budgets and budgets[KEYS[number * 4 - 3]]
      if budget then
        room = fits(budget, ARGV[claim + 2 * level + 1], limit) and 1 or 0
      end
      free = is_contended[number] and 0 or room < free and room or free
    end
    while free > 1 and stop < at do
      local is_alike = true
      for number = 0, width - 1, 2 do
        is_alike = is_alike and ARGV[stop + number] == ARGV[claim + number]
      end
      if not is_alike then
        break
      end
      free, stop = free - 1, stop + width
    end
    for level = 1, free > 0 and width or 0, 2 do
      -- The fast path: one unit for each of the claims before `stop`. It has the effect of `grant` for each in turn, but
      -- never moves an end back: if an id is there already, the same call was sent before.
      local number, first, count = ARGV[claim + level - 1] + 0, claim + level, 1
      local budget = budgets and budgets[KEYS[number * 4 - 3]]
      if budget then
        -- One claim at a time.
        reserve(budget, ARGV[first], ARGV[terms + (level - 1) / 2], now, expires_at)
        used[number] = used_of(budget)
        answer[size + level], answer[size + level + 1] = 1, used[number]
      else
        local held, token, before, added = KEYS[number * 4 - 3], KEYS[number * 4], used[number], nil
        local new_token = call('INCR', token)
        if stop - claim == width then
          added = call('ZADD', held, 'GT', expires_at, ARGV[first])
        else
          local ids = {}
          for id = first, stop - 1, width do
            local last = #ids
            ids[last + 1], ids[last + 2] = expires_at, ARGV[id]
          end
          count = #ids / 2
          added = call('ZADD', held, 'GT', unpack(ids))
        end
        local is_new, is_due = new_token < micros / 2, count > 1 or new_token % 4 == 0
        if is_new then
          new_token = math.max(micros, ARGV[3] + 0)
        end
        if is_new or count > 1 then
          call('SET', token, text(new_token + count - 1), 'PX', ttl)
        elseif is_due then
          call('PEXPIRE', token, ttl)
        end
        if before == 0 or is_due then
          call('PEXPIRE', held, ttl)
        end
        local now_used = before + added
        used[number] = now_used
        for nth = 1, count do
          local place, own = size + (nth - 1) * width + level, before + nth
          answer[place], answer[place + 1] = new_token + nth - 1, own < now_used and own or now_used
        end
      end
    end
    if free > 0 then
      size = size + stop - claim
    else
      if not decide then
        decide, finish = contended_claims(
          run, equal, used, is_contended, ended, now, micros, ARGV[3] + 0, ARGV[1] + 0, expires_at)
      end
      size = decide(terms, claim, levels, answer, size)
    end
    claim = stop
  end
end
for key = 1, (finish or budgets) and #KEYS or 0, 4 do
  if finish then
    finish(KEYS[key], KEYS[key + 1], KEYS[key + 2])
  elseif budgets[KEYS[key]] then
    close(budgets[KEYS[key]])
  end
end
return answer
