-- limits: sets or removes a limit, for an operator.
--
-- Promises: it changes no other key, so no permit and no waiter. The version grows with each call, even if the server's
-- clock is set back, and stays when the last limit is removed. So a process that knows a version can detect a newer
-- one. The version of the first call is stored behind it: if it differs, the server has lost its limits. A repeated call
-- has the same result.
--
-- KEYS  limits    a hash without a TTL: POLICY:KEY, or POLICY, -> LIMIT SINCE NOTE; *version -> VERSION FIRST, microseconds
-- ARGV  1 of      POLICY:KEY, or POLICY
--       2 value   LIMIT; -1 removes the limit
--       3 note    the operator's note, encoded
--       4 most    how many limits there may be
-- Returns the server's time in ms, and 1 (done) or 0 (too many limits; nothing has changed).

local limits, of, limit, note = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local now, micros = clock()

local is_new = limit ~= '-1' and call('HEXISTS', limits, of) == 0
-- HLEN includes the field of the version.
if is_new and call('HLEN', limits) > tonumber(ARGV[4]) then
  return {now, 0}
end
local last, first = string.match(call('HGET', limits, '*version') or '', '^(%d+) (%d+)$')
local version = text(math.max(micros, (last or 0) + 1))
-- The first write is a removal: a server whose memory is full accepts other writes only after one.
call('HDEL', limits, of)
if limit ~= '-1' then
  call('HSET', limits, of, limit .. ' ' .. text(now) .. ' ' .. note)
end
call('HSET', limits, '*version', version .. ' ' .. (first or version))
return {now, 1}
