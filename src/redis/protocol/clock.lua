-- clock: returns the server's time, and the highest time that any process has seen on it.
--
-- Promise: the highest never falls, as long as some process calls it now and then, although the
-- server's clock may be set back. Tokens that have no predecessor begin there.
--
-- KEYS  1 clock    the highest time, microseconds
-- ARGV  1 lease    ms
--       2 highest  what this process has seen, microseconds
-- Returns the server's time in ms, and the highest time in microseconds.

local now, micros = clock()
local ttl = text(tonumber(ARGV[1]) * LEASES)
local highest = math.max(micros, tonumber(ARGV[2]), tonumber(call('GET', KEYS[1]) or 0))
-- The first write needs no memory, because only then a server whose memory is full accepts the next.
call('PEXPIRE', KEYS[1], ttl)
call('SET', KEYS[1], text(highest), 'PX', ttl)
return {now, highest}
