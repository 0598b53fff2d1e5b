-- release: frees units, or leaves the queue, and grants to the next waiters.
--
-- Promise: only members that are named are touched, so a permit that was lost, and another's,
-- stay as they are. What has become free is granted in the same step to the head of the queue, and
-- only what was granted is notified.
--
-- KEYS  for each semaphore held, queue, alive, token; see queue.lua
-- ARGV  1 with_answer  1: say which units were still held; 0: the answer is not needed
--       2 floor        microseconds, where tokens begin at least if they have no predecessor
--       and for each semaphore every unit of every permit to release
-- Returns the server's time in ms, and for each unit 1 (it was held) or 0 (it was not) if requested;
-- else 0.

local with_answer, floor = ARGV[1] == '1', tonumber(ARGV[2])
local anything_waits = any_queue(KEYS)

local now, micros
local answer, at = {}, 3
for key = 1, #KEYS, 4 do
  local held, queue, last = KEYS[key], KEYS[key + 1], at + ARGV[at]
  if with_answer or anything_waits and call('EXISTS', queue) == 1 then
    if not now then
      now, micros = clock()
      answer[1] = now
    end
    local alive, token = KEYS[key + 2], KEYS[key + 3]
    call('ZREMRANGEBYSCORE', held, '-inf', text(now))
    for arg = at + 1, last do
      answer[#answer + 1] = call('ZREM', held, ARGV[arg])
    end
    if call('EXISTS', queue) == 1 then
      call('ZREM', queue, unpack(ARGV, at + 1, last))
      call('ZREM', alive, unpack(ARGV, at + 1, last))
      local semaphore = contended_semaphore(held, queue, alive, token, now, micros, floor)
      semaphore.advance(call('ZCARD', held))
    end
  else
    call('ZREM', held, unpack(ARGV, at + 1, last))
  end
  at = last + 1
end
return with_answer and answer or 0
