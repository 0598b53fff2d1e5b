-- release: frees units, removes waiters, and grants to the next waiters.
--
-- Promise: removes only units and waiters that are named, so it never releases another permit. Units that become free
-- are granted to the head of the queue in the same call. It notifies only the waiters that it grants, and the head if
-- its poll can grant more.
--
-- KEYS  for each semaphore held, queue, alive, token; see grant.lua. For a budget: see budget.lua
-- ARGV  1 with_answer  1: answer which units were still held; 0: no answer is needed
--       2 floor        microseconds, the least token for a semaphore that has none yet
--       and for each semaphore the number of units, and every unit of every permit to release; for a budget as in
--       `release_reservation` of budget.lua
-- Returns with an answer the server's time in ms and, for each unit, 1 (it was held) or 0 (it was
-- not); else 0.

local with_answer, floor = ARGV[1] == '1', tonumber(ARGV[2])
local anything_waits = any_queue(KEYS)

local now, micros, free, leave, advance, finish
local answer, at, ended = {}, 3, {}

-- Frees the units and waiters of a semaphore in the arguments from `first` to `last`.
local function release(key, first, last)
  local held, queue, alive, token = KEYS[key], KEYS[key + 1], KEYS[key + 2], KEYS[key + 3]
  local is_contended = anything_waits and (#KEYS == 4 or call('EXISTS', queue) == 1)
  local is_budget = budgets and is_hash(token)
  if not is_contended and not with_answer and not is_budget then
    call('ZREM', held, unpack(ARGV, first, last))
    return
  end
  if not now then
    now, micros = clock()
    answer[1] = now
  end
  if not is_contended and is_budget then
    count_held(key, now, false, first == last and string.match(ARGV[first], '^%S+') or nil)
    for arg = first, last do
      answer[#answer + 1] = release_reservation(budgets[held], ARGV[arg], now)
    end
    close(budgets[held])
    return
  end
  if not is_contended then
    call('ZREMRANGEBYSCORE', held, '-inf', text(now))
    for arg = first, last do
      answer[#answer + 1] = call('ZREM', held, ARGV[arg])
    end
    return
  end
  if not free then
    free, leave, advance, finish = granting(now, micros, floor, ended)
  end
  local semaphore = {held = held, queue = queue, alive = alive, token = token}
  semaphore.used, ended[held] = count_held(key, now, true)
  for arg = first, last do
    answer[#answer + 1] = free(semaphore, ARGV[arg])
  end
  -- Usually none of them waits, and one call to Redis shows that. The call is skipped if it could empty the set, and
  -- for budgets, whose arguments are no ids.
  local may_wait = is_budget or call('ZCARD', alive) <= last - first + 1
    or call('ZREM', alive, unpack(ARGV, first, last)) > 0
  -- From the last to the first, because the last waiter of a flow moves no other.
  for arg = last, may_wait and first or last + 1, -1 do
    leave(queue, alive, ARGV[arg])
  end
  advance(semaphore)
  finish(held, queue, alive)
end

local failure
for key = 1, #KEYS, 4 do
  local last = at + ARGV[at]
  -- A key of another type is an error of this semaphore only. It is reported after the other semaphores are free.
  local is_done, reason = pcall(release, key, at + 1, last)
  if not is_done then
    failure = reason
  end
  at = last + 1
end
-- Redis 6.2 puts `@user_script` before the error of a command, Redis 7 does not.
if type(failure) == 'string' and failure:sub(1, 1) ~= '@' then
  -- If the error were raised again, Redis 7 would put ERR before it, and its code would be lost.
  return redis.error_reply(failure)
elseif failure then
  error(failure, 0)
end
return with_answer and answer or 0
