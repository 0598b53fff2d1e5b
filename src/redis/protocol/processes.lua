-- processes: counts the processes that are alive, this one among them.
--
-- Promise: a process counts from its first call until a lease after its last one, or until it leaves.
--
-- KEYS  1 processes  process -> end of its lease, ms
-- ARGV  1 lease      ms; 0: the process leaves
--       3 process
-- Returns the server's time in ms, and how many processes are alive.

local now = clock()
local processes, lease, process = KEYS[1], tonumber(ARGV[1]), ARGV[3]
-- The first write needs no memory: a server whose memory is full accepts other writes only after one.
call('ZREMRANGEBYSCORE', processes, '-inf', text(now))
if lease > 0 then
  call('ZADD', processes, text(now + lease), process)
  call('PEXPIRE', processes, text(lease * LEASES))
else
  call('ZREM', processes, process)
end
return {now, call('ZCARD', processes)}
