-- release: gives units back, or leaves the line, and lets the next in.
--
-- Promise: only members that are named are touched, so a permit that was lost, and another's,
-- stay as they are. What has become free is granted in the same step to those at the head of the
-- line, and nobody else is woken.
--
-- ARGV  1 ask    1: say which units were still held; 0: nobody wants to know
--       and for each semaphore every unit of every permit to release
-- Returns for each unit 1 (it was held) or 0 (it was not) if asked, else 1.

-- include keys.lua
-- include lines.lua

local ask, answer, at = ARGV[1] == '1', {}, 2
for key = 1, #KEYS, 4 do
  local held, line, last = KEYS[key], KEYS[key + 1], at + ARGV[at]
  if ask or anybody_waits and call('EXISTS', line) == 1 then
    -- What is not as usual: somebody waits, or wants an answer.
    local beat, ticket = KEYS[key + 2], KEYS[key + 3]
    -- include clock.lua
    -- include line.lua
    call('ZREMRANGEBYSCORE', held, '-inf', text(now))
    for arg = at + 1, last do
      answer[#answer + 1] = call('ZREM', held, ARGV[arg])
    end
    if call('EXISTS', line) == 1 then
      call('ZREM', line, unpack(ARGV, at + 1, last))
      call('ZREM', beat, unpack(ARGV, at + 1, last))
      advance(call('ZCARD', held))
    end
  else
    call('ZREM', held, unpack(ARGV, at + 1, last))
  end
  at = last + 1
end
return ask and answer or 1
