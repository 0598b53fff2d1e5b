-- process: says who a process is, or asks.
--
-- KEYS  1 process   a string, what the process has said of itself
-- ARGV  1 lease     ms
--       2 the number of arguments that follow
--       3 about     what the process says of itself; nothing: it is asked
-- Returns the server's time in ms, and what the process has said; nothing if that is too long ago.

local now = clock()
if ARGV[3] then
  local ttl = text(tonumber(ARGV[1]) * LEASES)
  -- The first write needs no memory: a server whose memory is full accepts other writes only after one.
  call('PEXPIRE', KEYS[1], ttl)
  call('SET', KEYS[1], ARGV[3], 'PX', ttl)
end
return {now, call('GET', KEYS[1]) or ''}
