-- check: runs each command of the other scripts and of operators' calls, on separate keys, and names the commands that
-- fail. The commands of operators' calls change nothing. Some of them fail because the key has another type, which shows
-- that they are permitted.
--
-- KEYS  1 probe    a sorted set, empty again when the script ends
--       2 number   a string, which expires at once
-- ARGV  1 channel  of this process, on which nothing else listens
--       2 read     a command that reads a key of the store, the only one of KEYS; its other arguments follow. Only it is run
-- Returns for each command that failed its name and the error, one after the other.

local probe, number = KEYS[1], KEYS[2]
local failed = {}

local function try(command, ...)
  local answer = redis.pcall(command, ...)
  if type(answer) == 'table' and answer.err then
    failed[#failed + 1], failed[#failed + 2] = command, answer.err
  end
end

if ARGV[2] then
  try(ARGV[2], KEYS[1], unpack(ARGV, 3))
  if failed[1] then
    failed[1] = ARGV[2] .. ' ' .. KEYS[1]
  end
  return failed
end

-- The first write removes: a server whose memory is full accepts other writes only after one.
try('ZREMRANGEBYSCORE', probe, '-inf', '+inf')
try('ZADD', probe, 1, 'member')
try('PEXPIRE', probe, 1000)
try('ZCARD', probe)
try('ZSCORE', probe, 'member')
try('ZRANGE', probe, 0, 0)
try('ZRANGEBYSCORE', probe, 0, 1)
try('PTTL', probe)
try('EXISTS', probe)
try('ZREM', probe, 'member')
-- The key does not exist now, so commands for hashes accept it.
try('HGET', probe, 'field')
try('HGETALL', probe)
try('SET', number, 1, 'PX', 1000)
try('INCR', number)
try('GET', number)
-- Only operators' calls need these.
try('HDEL', number, 'field')
try('HEXISTS', number, 'field')
try('HLEN', number)
try('HMGET', probe, 'field')
try('HSET', number, 'field', '')
try('ZCOUNT', probe, 0, 0)
try('ZSCAN', probe, 0)
try('SCAN', 0, 'COUNT', 1)
try('PEXPIRE', number, 1)
try('PUBLISH', ARGV[1], '')
try('TIME')
try('PING')
return failed
