-- pause: pauses a semaphore until a time, or ends its pause.
--
-- A pause is an entry in the queue with score 0, before all waiters. Its id has the form of a waiter's id, with weight 1
-- and limit 0. So the head of the queue does not fit until the pause has ended. Then the entry is removed like a dead
-- waiter. Grants need no rule for pauses: queue.lua only leaves the entry out of counts, and reports it. No waiter moves
-- up when the entry leaves, because no claim can have its flow, `!`.
--
-- Promises: a semaphore has at most one pause, and a shorter pause never replaces a longer one, except that the queue of a
-- budget follows its hash. Holders and waiters stay as they are. The end is at most LENGTH ahead, even if the clock is set
-- back. The keys outlive the pause only if claims wait.
--
-- The pause of a budget is also stored in the hash that the budgets of all windows share, so that it holds for windows that are
-- used for the first time during the pause: see `enter_pause` of budget.lua. Window 0 stands for these.
--
-- KEYS  held, queue, alive, token; see grant.lua. Of a budget: see budget.lua
-- ARGV  1 floor   microseconds, the least token for a semaphore that has none yet
--       2 length  ms, how long the pause lasts from now on; 0: the pause ends now, and the next waiters are granted
--       3 2, the number of arguments that follow
--       4 before  the id before the time: PROCESS.0.0.0.0.1.LENGTH.
--       5 behind  the id after the time: .1.!.NOTE. The script inserts the server's time, in ms and decimal
-- Returns the server's time in ms, and 1 (the semaphore is paused; or for length 0: this call has ended its pause) or 0. The
-- pause of a budget is ended by the call for window 0, and the calls for the other windows follow it.

local held, queue, alive, token = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local floor, length = tonumber(ARGV[1]), tonumber(ARGV[2])
local now, micros = clock()
local semaphore, ended = {held = held, queue = queue, alive = alive, token = token}, {}
local free, leave, advance, finish, revocation_of, clamp, waiting_in, drop, enter, tell_to_poll =
  granting(now, micros, floor, ended)
semaphore.used, ended[held] = count_held(1, now, true)

local old = call('ZRANGE', queue, 0, 0)[1]
old = is_pause(old) and old
clamp(alive)
local ends = old and tonumber(call('ZSCORE', alive, old) or 0) or 0

-- Restores the TTLs that the pause had extended: eight leases of the first waiter, and for `alive` at least until its last
-- revocation ends.
local function expire_again()
  local waiter = call('ZRANGE', queue, 0, 0)[1] or ''
  local lease = tonumber(string.match(waiter, '^%w+%.%w+%.%w+%.%w+%.%w+%.%w+%.(%w+)') or '', 36) or 0
  local revoked = tonumber(call('ZRANGE', alive, 0, 0, 'WITHSCORES')[2] or 0)
  -- The leases of others may be longer. Each waiter polls every five seconds at least, and extends the TTL then.
  local ttl = waiting_in(queue) > 0 and lease > 0 and math.max(lease * LEASES, 20000) or 0
  local alive_ttl = math.max(ttl, -REVOKED - revoked - now)
  if ttl > 0 then
    call('PEXPIRE', queue, text(ttl))
  end
  if alive_ttl > 0 then
    call('PEXPIRE', alive, text(alive_ttl))
  end
end

local is_budget = is_hash(token)
-- For another window than 0 the hash shows if the pause was ended. Perhaps the key was paused again since.
local follows_hash = is_budget and budgets[held].window > 0
-- This call ends the pause if its length is 0.
local may_end = ends > now and not follows_hash
if length == 0 then
  if is_budget and not follows_hash then
    call('HDEL', token, 'pause')
  end
  if old and (may_end or ends <= now) then
    leave(queue, alive, old)
    expire_again()
  end
  advance(semaphore)
elseif now + length > ends then
  if ends <= now then
    -- The poll of the first waiter returns the end of the pause. The others learn it from their heartbeats. First, because
    -- PUBLISH fails if the user may not publish. Then nothing has changed.
    tell_to_poll(semaphore, old and 1 or 0, 0)
  end
  if waiting_in(queue) == 0 then
    -- An aborted script may have left the last arrival and the tags of an earlier queue.
    call('ZREMRANGEBYSCORE', alive, text(-REVOKED), '-1')
  end
  local id = ARGV[4] .. text(now) .. ARGV[5]
  if is_budget then
    -- Before the queue, because HSET fails if the user may not use it.
    call('HSET', token, 'pause', text(now + length) .. ' ' .. id)
  end
  if id ~= old then
    enter(queue, alive, id, '0', text(now + length))
    if old then
      drop(queue, alive, old)
    end
  end
  rarely().extend({alive, queue, is_budget and token or nil}, length)
end
finish(held, queue, alive)
return {now, (length > 0 or may_end) and 1 or 0}
