-- acquire_all: grants the permits of several semaphores together, all or none. So for each claim,
-- one after the other.
--
-- A claim has levels, from the narrowest limit to the widest. Where one is full, a claim that does
-- not wait there gets nothing: it is decided before anything is granted, so nobody ever sees a
-- unit of it. A claim that waits there joins that queue, and holds the units of the narrower levels
-- for as long as it counts as alive. Everybody goes from narrow to wide, so there is no deadlock.
--
-- Promises: those of acquire, for each level.
--
-- KEYS  for each semaphore of these claims, once, held, queue, alive, token; see grant.lua
-- ARGV  1 lease     ms
--       2 deadline  ms of the server's clock, after which the call changes nothing
--       3 floor     microseconds, where tokens begin at least if they have no predecessor
--       and for each claim how many arguments it has, and for each of its levels the number of its
--       semaphore, from 1, and those of acquire: id, limit, wait
-- Returns the server's time in ms, alone if the call is late, and for each claim a list:
--       token, units held now, for each level           it is granted
--       0, level, units held now                        that level is full
--       -1, level, units held now                       the queue of that level is full
--       -3, level, units held now                       it was revoked at that level
--       -2, level, units held now, arrival, recheck_ms, last_token
--                                                       it waits there; see acquire

local now, micros = clock()
if now > tonumber(ARGV[2]) then
  return {now}
end
local lease, floor = tonumber(ARGV[1]), tonumber(ARGV[3])
local expired_before, expires_at, ttl = text(now), text(now + lease), text(lease * LEASES)
local anything_waits = any_queue(KEYS)

-- By the number of the semaphore, as ARGV has it: its keys; `used`, the units held; what the fast
-- path has granted and not written, in `units`; and its `operations`, once they are needed.
local known = {}

-- Counts the units of a semaphore that this call has not met yet.
local function meet(number)
  local key = number * 4
  local held, queue = KEYS[key - 3], KEYS[key - 2]
  local used = call('ZCARD', held)
  -- The first write removes, because only then a server whose memory is full accepts the others.
  if used > 0 or key == 4 then
    used = used - call('ZREMRANGEBYSCORE', held, '-inf', expired_before)
  end
  -- All fields are set here, because a table that grows is slow.
  local self = {
    held = held, queue = queue, alive = KEYS[key - 1], token = KEYS[key], used = used,
    is_contended = anything_waits and call('EXISTS', queue) == 1, operations = false,
    units = false, count = 0, next_token = 0, is_new = false
  }
  known[number] = self
  return self
end

-- Whether one unit fits at each level, and nothing waits at any. `limit` is 0 for several units, and -1
-- for a permit that was sent before.
local function is_free(first, last)
  for arg = first, last, 4 do
    local semaphore = known[ARGV[arg]] or meet(ARGV[arg])
    if semaphore.is_contended or ARGV[arg + 2] - semaphore.used <= 0 then
      return false
    end
  end
  return true
end

-- Begins to grant units of a semaphore on the fast path, with the token of the first of them.
local function begin(self)
  local new_token = call('INCR', self.token)
  self.is_new = new_token == 1
  self.next_token = self.is_new and math.max(micros, floor) or new_token
  self.units, self.count = {}, 0
end

-- The fast path: one unit at each level, as acquire grants it. The units of a semaphore are written
-- together, later: a server that adds many units at once takes a third of the time.
local function grant(first, last)
  local answer, size = {}, 0
  for arg = first, last, 4 do
    local self = known[ARGV[arg]]
    if not self.units then
      begin(self)
    end
    local units, count, used = self.units, self.count, self.used + 1
    units[count * 2 + 1], units[count * 2 + 2] = expires_at, ARGV[arg + 1]
    answer[size + 1], answer[size + 2] = self.next_token, used
    self.count, self.used, self.next_token = count + 1, used, self.next_token + 1
    size = size + 2
  end
  return answer
end

-- Writes what the fast path has granted. A unit that was held before this call was counted twice
-- until now.
local function write(self)
  local before = self.used - self.count
  self.used = before + call('ZADD', self.held, unpack(self.units))
  local last_token, is_due = self.next_token - 1, self.count > 1
  if is_due or self.is_new then
    call('SET', self.token, text(last_token), 'PX', ttl)
  elseif last_token % 4 == 0 then
    is_due = true
    call('PEXPIRE', self.token, ttl)
  end
  if is_due or before == 0 then
    call('PEXPIRE', self.held, ttl)
  end
  self.units = false
end

local function write_all()
  for _, semaphore in pairs(known) do
    if semaphore.units then
      write(semaphore)
    end
  end
end

-- Extends the time for which the waiters in this call count as alive, from this claim on.
local function revive_all(at)
  while at <= #ARGV do
    local last = at + ARGV[at]
    for arg = at + 1, last, 4 do
      revive(KEYS[ARGV[arg] * 4 - 1], now, arg + 1, arg + 1)
    end
    at = last + 1
  end
end

-- The levels of a claim, and the operations of their semaphores.
local function levels_of(first, last)
  local levels = {}
  for arg = first, last, 4 do
    local self = known[ARGV[arg]] or meet(ARGV[arg])
    if not self.operations then
      self.operations =
        contended_semaphore(self.held, self.queue, self.alive, self.token, now, micros, floor)
    end
    levels[#levels + 1] = {
      counts = self, semaphore = self.operations, id = ARGV[arg + 1], wait = ARGV[arg + 3],
      was_sent = ARGV[arg + 2] == '-1'
    }
  end
  return levels
end

-- Grants at all levels.
local function take(levels)
  local answer = {}
  for _, level in ipairs(levels) do
    local token
    token, level.counts.used = level.semaphore.take(level.counts.used, level.id, level.head, lease)
    answer[#answer + 1], answer[#answer + 2] = token, level.counts.used
  end
  return answer
end

-- Releases what the claim has at any level.
local function refuse(levels, why, at)
  local answer = {why, at, levels[at].counts.used}
  for _, level in ipairs(levels) do
    level.counts.used = level.semaphore.release(level.counts.used, level.id)
  end
  return answer
end

-- Waits at one level, and holds the narrower ones. It has nothing of the wider ones, unless its
-- units here have expired since it was granted them: then it starts again from here.
local function wait(levels, at)
  local level = levels[at]
  local first
  first, level.counts.used =
    level.semaphore.wait(level.counts.used, level.id, level.head, level.wait, lease)
  if first == -1 then
    return refuse(levels, -1, at)
  end
  local alive_ms = string.match(level.wait, '^%d+')
  for narrower = 1, at - 1 do
    local level = levels[narrower]
    level.counts.used = level.semaphore.keep(level.counts.used, level.id, alive_ms, lease)
  end
  for wider = at + 1, #levels do
    local level = levels[wider]
    level.counts.used = level.semaphore.release(level.counts.used, level.id)
  end
  -- Granted in passing, because of its head start: the next poll goes on from there.
  local arrival, recheck, last_token = micros, 0, first
  if type(first) == 'table' then
    arrival, recheck, last_token = first[1], first[2], first[3]
  end
  return {-2, at, level.counts.used, arrival, recheck, last_token}
end

-- Where something waits, or does not fit, or may have been revoked.
local function decide(levels)
  for at, level in ipairs(levels) do
    if level.was_sent and level.semaphore.is_revoked(level.id) then
      return refuse(levels, -3, at)
    end
  end
  for at, level in ipairs(levels) do
    local admitted
    admitted, level.counts.used, level.head =
      level.semaphore.admits(level.counts.used, level.id, level.wait ~= '')
    if not admitted then
      if level.wait == '' then
        return refuse(levels, 0, at)
      end
      return wait(levels, at)
    end
  end
  return take(levels)
end

local answer, at, is_revived = {now}, 4, false
while at <= #ARGV do
  local first, last = at + 1, at + ARGV[at]
  if is_free(first, last) then
    answer[#answer + 1] = grant(first, last)
  else
    write_all()
    if not is_revived then
      revive_all(at)
      is_revived = true
    end
    local levels = levels_of(first, last)
    answer[#answer + 1] = decide(levels)
    for _, level in ipairs(levels) do
      level.counts.is_contended = call('EXISTS', level.counts.queue) == 1
    end
    anything_waits = true
  end
  at = last + 1
end
write_all()
return answer
