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
-- KEYS  for each level of each claim held, queue, alive, token; see grant.lua
-- ARGV  1 lease     ms
--       2 deadline  ms of the server's clock, after which the call changes nothing
--       3 floor     microseconds, where tokens begin at least if they have no predecessor
--       and for each claim how many arguments it has, and for each of its levels those of acquire:
--       id, limit, wait
-- Returns the server's time in ms, alone if the call is late, and for each claim a list:
--       token, units held now, for each level           it is granted
--       0, level, units held now                        that level is full
--       -1, level, units held now                       the queue of that level is full
--       -2, level, units held now, arrival, recheck_ms, last_token
--                                                       it waits there; see acquire

local now, micros = clock()
if now > tonumber(ARGV[2]) then
  return {now}
end
local lease, floor = tonumber(ARGV[1]), tonumber(ARGV[3])
local expired_before, expires_at, ttl = text(now), text(now + lease), text(lease * LEASES)
local anything_waits = any_queue(KEYS)

-- By the name of `held`: units held, whether something waits, and the operations once needed.
local used, is_contended, semaphores = {}, {}, {}

-- Counts a semaphore that this call has not met yet.
local function meet(key)
  local held = KEYS[key]
  local count = call('ZCARD', held)
  -- The first write removes, because only then a server whose memory is full accepts the others.
  if count > 0 or key == 1 then
    count = count - call('ZREMRANGEBYSCORE', held, '-inf', expired_before)
  end
  used[held] = count
  is_contended[held] = anything_waits and call('EXISTS', KEYS[key + 1]) == 1
end

-- Whether one unit fits at each level, and nothing waits at any. `limit` is 0 for several units.
local function is_free(key, first, last)
  for arg = first, last, 3 do
    local held = KEYS[key]
    if not used[held] then
      meet(key)
    end
    if is_contended[held] or used[held] >= tonumber(ARGV[arg + 1]) then
      return false
    end
    key = key + 4
  end
  return true
end

-- The fast path: one unit at each level, as acquire grants it.
local function grant(key, first, last)
  local answer = {}
  for arg = first, last, 3 do
    local held, token = KEYS[key], KEYS[key + 3]
    local added, new_token = call('ZADD', held, expires_at, ARGV[arg]), call('INCR', token)
    if new_token == 1 then
      new_token = math.max(micros, floor)
      call('SET', token, text(new_token), 'PX', ttl)
    elseif new_token % 4 == 0 then
      call('PEXPIRE', token, ttl)
    end
    if used[held] == 0 or new_token % 4 == 0 then
      call('PEXPIRE', held, ttl)
    end
    used[held] = used[held] + added
    answer[#answer + 1], answer[#answer + 2] = new_token, used[held]
    key = key + 4
  end
  return answer
end

-- The operations of the levels of a claim.
local function operations(key, first, last)
  local levels = {}
  for arg = first, last, 3 do
    local held, queue, alive, token = KEYS[key], KEYS[key + 1], KEYS[key + 2], KEYS[key + 3]
    if not used[held] then
      meet(key)
    end
    local semaphore = semaphores[held]
    if not semaphore then
      semaphore = contended_semaphore(held, queue, alive, token, now, micros, floor)
      semaphores[held] = semaphore
    end
    semaphore.revive(arg, arg)
    levels[#levels + 1] = {
      held = held, queue = queue, semaphore = semaphore, id = ARGV[arg], wait = ARGV[arg + 2]
    }
    key = key + 4
  end
  return levels
end

-- Grants at all levels.
local function take(levels)
  local answer = {}
  for _, level in ipairs(levels) do
    local token
    token, used[level.held] = level.semaphore.take(used[level.held], level.id, level.head, lease)
    answer[#answer + 1], answer[#answer + 2] = token, used[level.held]
  end
  return answer
end

-- Gives back what the claim has at any level.
local function refuse(levels, why, at)
  local answer = {why, at, used[levels[at].held]}
  for _, level in ipairs(levels) do
    used[level.held] = level.semaphore.give_back(used[level.held], level.id)
  end
  return answer
end

-- Waits at one level, and holds the narrower ones. It has nothing of the wider ones, unless its
-- units here have expired since it was granted them: then it starts again from here.
local function wait(levels, at)
  local level = levels[at]
  local first
  first, used[level.held] =
    level.semaphore.wait(used[level.held], level.id, level.head, level.wait, lease)
  if first == -1 then
    return refuse(levels, -1, at)
  end
  local alive_ms = string.match(level.wait, '^%d+')
  for narrower = 1, at - 1 do
    local level = levels[narrower]
    used[level.held] = level.semaphore.keep(used[level.held], level.id, alive_ms, lease)
  end
  for wider = at + 1, #levels do
    local level = levels[wider]
    used[level.held] = level.semaphore.give_back(used[level.held], level.id)
  end
  -- Granted in passing, because of its head start: the next poll goes on from there.
  local arrival, recheck, last_token = micros, 0, first
  if type(first) == 'table' then
    arrival, recheck, last_token = first[1], first[2], first[3]
  end
  return {-2, at, used[level.held], arrival, recheck, last_token}
end

-- Where something waits, or does not fit.
local function decide(levels)
  for at, level in ipairs(levels) do
    local admitted
    admitted, used[level.held], level.head =
      level.semaphore.admits(used[level.held], level.id, level.wait ~= '')
    if not admitted then
      if level.wait == '' then
        return refuse(levels, 0, at)
      end
      return wait(levels, at)
    end
  end
  return take(levels)
end

local answer, at, key = {now}, 4, 1
while at <= #ARGV do
  local first, last = at + 1, at + ARGV[at]
  if is_free(key, first, last) then
    answer[#answer + 1] = grant(key, first, last)
  else
    local levels = operations(key, first, last)
    answer[#answer + 1] = decide(levels)
    for _, level in ipairs(levels) do
      is_contended[level.held] = call('EXISTS', level.queue) == 1
    end
    anything_waits = true
  end
  at, key = last + 1, key + (last - first + 1) / 3 * 4
end
return answer
