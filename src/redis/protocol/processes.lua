-- processes: counts the processes that are alive, this one among them.
--
-- Promise: a process counts from its first call until a lease after its last one, or until it leaves. If
-- the server's clock is set back, until a lease after the next call of any process.
--
-- KEYS  1 processes  process:lease -> end of its lease, ms
-- ARGV  1 lease      ms; 0: the process leaves
--       3 process    process:lease, with the usual lease in ms
-- Returns the server's time in ms, and how many processes are alive.

local now = clock()
local processes, lease, process = KEYS[1], tonumber(ARGV[1]), ARGV[3]
-- The first write needs no memory: a server whose memory is full accepts other writes only after one.
call('ZREMRANGEBYSCORE', processes, '-inf', text(now))
-- Leases may differ. An end that is further away than its own lease is from before the clock was set back.
for _, other in ipairs(call('ZRANGEBYSCORE', processes, '(' .. text(now + lease), '+inf')) do
  local latest = now + (tonumber(string.match(other, ':(%d+)$')) or 0)
  if tonumber(call('ZSCORE', processes, other)) > latest then
    call('ZADD', processes, text(latest), other)
  end
end
if lease > 0 then
  call('ZADD', processes, text(now + lease), process)
  call('PEXPIRE', processes, text(lease * LEASES))
else
  call('ZREM', processes, process)
end
return {now, call('ZCARD', processes)}
