
-- refresh_budgets: moves the end of live leases forward, and settles what their holders have used.
--
-- Promises: those of refresh.lua. A settlement is a total, and only its growth counts. A reservation is settled for the first
-- time when its claim is granted: with the first lease of full length.
--
-- KEYS  for each semaphore held, queue, alive, token; for each budget held, queue, alive, budget; see grant.lua and budget.lua
-- ARGV  1 lease  ms
--       and for each semaphore the number of units, and every unit of every permit to refresh, for each budget as `ID TOTAL`
-- Returns the server's time in ms and, for each unit, 1 (held) or 0 (lost). A reservation that is gone is lost only if its
-- claim is not granted yet, or an operator has revoked it: else that of a permit was spent, and the permit goes on.

local now, micros = clock()
local lease = tonumber(ARGV[1])
local own = tonumber(string.match(ARGV[3], '^%w+%.%w+%.%w+%.%w+%.%w+%.%w+%.(%w+)'), 36)
-- Claims that are not granted yet are refreshed for less than the lease in their ids; see refresh.lua.
local is_provisional = lease < own
local option, expires_at = is_provisional and 'GT' or 'XX', text(now + lease)
local anything_waits = any_queue(KEYS)
local answer, at = {now}, 2

-- Builds the functions that are rarely needed.
local finish, revocation_of
local function build()
  local _
  if not finish then
    _, _, _, finish, revocation_of = granting(now, micros, 0, {}, is_provisional)
  end
end

-- True if an operator has revoked the permit of a reservation.
local function is_revoked(budget, id)
  build()
  return call('ZSCORE', KEYS[budget.key + 2], revocation_of(id))
end

-- Refreshes and settles the reservations of a budget in the arguments from `first` to `last`.
local function refresh(budget, first, last)
  local fields = {}
  for arg = first, last do
    local id, total = string.match(ARGV[arg], '^(%S+) (%d+)$')
    local is_held = is_reserved(budget, id, now)
    if is_held then
      call('ZADD', budget.held, 'XX', option, expires_at, id)
    end
    if is_held and not is_provisional then
      local _, weight = limit_and_weight(id)
      local _, settled = settle(budget, id, weight, tonumber(total))
      fields[#fields + 1], fields[#fields + 2] = budget.prefix .. id, text(settled)
    end
    answer[#answer + 1] = (is_held or not is_provisional and not is_revoked(budget, id)) and 1 or 0
  end
  if fields[1] then
    save(budget, unpack(fields))
  end
  if not budget.is_empty then
    outlive(budget, lease)
  end
end

for key = 1, #KEYS, 4 do
  local held, queue, token, last = KEYS[key], KEYS[key + 1], KEYS[key + 3], at + ARGV[at]
  if is_hash(token) then
    local is_contended = anything_waits and call('EXISTS', queue) == 1
    count_held(key, now, is_contended, last == at + 1 and string.match(ARGV[last], '^%S+') or nil)
    refresh(budgets[held], at + 1, last)
    if is_contended then
      build()
      finish(held, queue, KEYS[key + 2])
    else
      close(budgets[held])
    end
  else
    -- All units may have ended. Then their set is empty, and is not named any more.
    local count = call('ZCARD', held)
    count = count - call('ZREMRANGEBYSCORE', held, '-inf', text(now))
    for arg = at + 1, last do
      local is_held = count > 0 and call('ZSCORE', held, ARGV[arg])
      if is_held then
        call('ZADD', held, 'XX', option, expires_at, ARGV[arg])
      end
      answer[#answer + 1] = is_held and 1 or 0
    end
    if count > 0 and call('PTTL', held) < lease * (LEASES - 1) then
      call('PEXPIRE', held, text(lease * LEASES))
      call('PEXPIRE', token, text(lease * LEASES))
    end
  end
  at = last + 1
end
return answer
