-- presence: announces a process and describes it, and reads the server's clock and the limits that operators have set.
-- A call handles only the parts whose keys it names, because on a cluster the keys are on several nodes.
--
-- Promises: the highest time never falls, even if the server's clock is set back, as long as the script is called for
-- it at least once in eight leases. The first token of a semaphore is at least as high. A process counts as alive from
-- its first call until a lease after its last call, or until it leaves. If the server's clock is set back, it counts
-- until a lease after the next call of any process that stays.
--
-- KEYS  one for each part
--         clock      a string, the highest time that any process has seen, microseconds
--         processes  process:lease -> end of its lease, ms
--         process    a string, how a process describes itself
--         limits     a hash, the limits that operators have set; see limits.lua
-- ARGV  1 lease  ms; 0: the process leaves, and the call does nothing else
--       and for each key the number of its arguments, 2, and the arguments
--         part   clock, processes, process or limits
--         value  clock: the highest time that this process has seen, microseconds; processes: process:lease,
--                with the usual lease in ms; process: its description, or empty to read the stored one;
--                limits: the version that this process knows, empty if it knows none, 0 for a server without any
-- Returns the server's time in ms, and for each key: clock: the highest time, microseconds; processes: the number of live
-- ones, including this one, or 0 if it leaves; process: the description, empty if it has expired; limits: 0 if the
-- version is the same, else the fields and values.

local now, micros = clock()
local lease = tonumber(ARGV[1])
local ttl = text(lease * LEASES)

-- The first write of each part needs no memory: a server whose memory is full accepts other writes only after such a
-- write.
local parts = {}

function parts.clock(key, seen)
  local highest = math.max(micros, tonumber(seen), tonumber(call('GET', key) or 0))
  call('PEXPIRE', key, ttl)
  call('SET', key, text(highest), 'PX', ttl)
  return highest
end

function parts.processes(key, process)
  if lease == 0 then
    call('ZREM', key, process)
    return 0
  end
  call('PEXPIRE', key, ttl)
  call('ZADD', key, text(now + lease), process)
  call('PEXPIRE', key, ttl)
  call('ZREMRANGEBYSCORE', key, '-inf', text(now))
  -- Leases may differ. An end that is more than the process's own lease ahead was written before the clock was set
  -- back.
  for _, other in ipairs(call('ZRANGEBYSCORE', key, '(' .. text(now + lease), '+inf')) do
    local latest = now + (tonumber(string.match(other, ':(%d+)$')) or 0)
    if tonumber(call('ZSCORE', key, other)) > latest then
      call('ZADD', key, text(latest), other)
    end
  end
  return call('ZCARD', key)
end

function parts.process(key, about)
  if about ~= '' then
    call('PEXPIRE', key, ttl)
    call('SET', key, about, 'PX', ttl)
  end
  return call('GET', key) or ''
end

function parts.limits(key, known)
  if string.match(call('HGET', key, '*version') or '0', '^%S*') == known then
    return 0
  end
  return call('HGETALL', key)
end

local answer = {now}
for number, key in ipairs(KEYS) do
  local at = 3 * number
  answer[number + 1] = parts[ARGV[at]](key, ARGV[at + 1])
end
return answer
