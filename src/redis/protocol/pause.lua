-- pause: pauses a semaphore until a time, or ends its pause.
--
-- A pause is an entry in the queue with score 0, so it is before all waiters. Its id has the form of a waiter's id, with
-- the weight 1 and the limit 0. So the head of the queue never fits until the pause has ended, and then the entry is
-- removed like a waiter that has died. All scripts thus observe a pause without a word about it. No waiter moves up when
-- the entry leaves, because no claim can have its flow, `!`.
--
-- Promises: there is one pause at most, and a shorter one never replaces it. Holders and waiters stay as they are. The end
-- is at most LENGTH ahead, also if the clock is set back. The keys outlive the pause only if claims wait.
--
-- KEYS  held, queue, alive, token; see grant.lua
-- ARGV  1 floor   microseconds, the least token for a semaphore that has none yet
--       2 length  ms, how long the pause lasts from now on; 0: the pause ends now, and the next waiters are granted
--       3 2, the number of arguments that follow
--       4 before  PROCESS.0.0.0.0.1.LENGTH. and
--       5 behind  .1.!.NOTE, the parts of the id around the server's time, in ms and decimal
-- Returns the server's time in ms, and 1 (the semaphore is paused; or for length 0: it was) or 0.

local held, queue, alive, token = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local floor, length = tonumber(ARGV[1]), tonumber(ARGV[2])
local now, micros = clock()
local semaphore, ended = {held = held, queue = queue, alive = alive, token = token}, {}
local free, leave, advance, finish, revocation_of, grant, hold, clamp, flow_of, waiting_in, drop, enter =
  granting(now, micros, floor, ended)
semaphore.used, ended[held] = count_held(held, now)

local old = call('ZRANGE', queue, 0, 0)[1]
old = is_pause(old) and old
clamp(alive)
local ends = old and tonumber(call('ZSCORE', alive, old) or 0) or 0
if length == 0 then
  if old then
    leave(queue, alive, old)
  end
  advance(semaphore)
elseif now + length > ends then
  local at = old and 1 or 0
  local process, name = string.match(call('ZRANGE', queue, at, at)[1] or '', '^(%w+)%.(%w+%.%w+%.%w+)%.')
  if process and ends <= now then
    -- Notifies the first waiter, whose poll returns the end of the pause. The others learn it from their heartbeats.
    -- Before anything changes, because the user may have no right to it.
    call('PUBLISH', string.match(held, '^[^{]*') .. 'wake:' .. process, name .. ' 0 ' .. semaphore.used)
  end
  if waiting_in(queue) == 0 then
    -- An aborted script may have left the marks of an earlier queue.
    call('ZREMRANGEBYSCORE', alive, text(-REVOKED), '-1')
  end
  local id = ARGV[4] .. text(now) .. ARGV[5]
  if id ~= old then
    enter(queue, alive, id, '0', text(now + length))
    if old then
      drop(queue, alive, old)
    end
  end
  for _, key in ipairs({queue, alive}) do
    if call('PTTL', key) < length then
      call('PEXPIRE', key, text(length))
    end
  end
end
finish(held, queue, alive)
return {now, (length > 0 or ends > now) and 1 or 0}
