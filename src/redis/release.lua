-- release: gives units back, or leaves the line, and lets the next in.
--
-- Promise: only members that are named are touched, so a permit that was lost, and another's,
-- stay as they are. What has become free is granted in the same step to those at the head of the
-- line, and nobody else is woken.
--
-- ARGV  1 ask      1: say which units were still held; 0: nobody wants to know
--       2... units  every unit of every permit to release, a few hundred at most
-- Returns for each unit 1 (it was held) or 0 (it was not) if asked, else how many there were.

local ask, waiting = ARGV[1] == '1', redis.call('EXISTS', line) == 1
local now, micros
if ask or waiting then
  now, micros = clock()
  redis.call('ZREMRANGEBYSCORE', held, '-inf', now)
end

local answer = {}
if ask then
  for i = 2, #ARGV do
    answer[#answer + 1] = redis.call('ZREM', held, ARGV[i])
  end
else
  answer = redis.call('ZREM', held, unpack(ARGV, 2))
end

if waiting then
  redis.call('ZREM', line, unpack(ARGV, 2))
  redis.call('ZREM', beat, unpack(ARGV, 2))
  advance(redis.call('ZCARD', held), now, micros)
end
return answer
