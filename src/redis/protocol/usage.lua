-- usage: lists what is held of a semaphore, and what waits for it.
--
-- Promise: it writes nothing. What has ended is not listed, whether or not it was removed.
--
-- KEYS  held, queue, alive; see grant.lua
-- ARGV  1 0, the number of arguments that follow
-- Returns the server's time in ms; a list of each unit that is held and its end, and one of each claim
-- that waits, in the order of the queue, and until when it counts as alive.

local held, queue, alive = KEYS[1], KEYS[2], KEYS[3]
local now = clock()
local waiting = {}
for _, id in ipairs(call('ZRANGE', queue, 0, -1)) do
  local alive_until = call('ZSCORE', alive, id)
  if alive_until and tonumber(alive_until) > now then
    waiting[#waiting + 1], waiting[#waiting + 2] = id, alive_until
  end
end
return {now, call('ZRANGEBYSCORE', held, '(' .. text(now), '+inf', 'WITHSCORES'), waiting}
