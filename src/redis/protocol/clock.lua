-- clock: returns the server's time, and the highest time that any process has seen on the server.
--
-- Promise: the highest time never falls, even if the server's clock is set back, as long as the
-- script is called at least once in eight leases. The first token of a semaphore is at least as high.
--
-- KEYS  1 clock    the highest time, microseconds
-- ARGV  1 lease    ms
--       2 highest  what this process has seen, microseconds
-- Returns the server's time in ms, and the highest time in microseconds.

local now, micros = clock()
local ttl = text(tonumber(ARGV[1]) * LEASES)
local highest = math.max(micros, tonumber(ARGV[2]), tonumber(call('GET', KEYS[1]) or 0))
-- The first write needs no memory: a server whose memory is full accepts other writes only after one.
call('PEXPIRE', KEYS[1], ttl)
call('SET', KEYS[1], text(highest), 'PX', ttl)
return {now, highest}
