
-- refresh_budgets: moves the end of live leases forward, and settles what their holders have used.
--
-- Promises: those of refresh.lua. A settlement is a total, and only its growth counts. A reservation is settled for the first
-- time when its claim is granted: with the first lease of full length.
--
-- KEYS  for each semaphore held, queue, alive, token; for each budget held, queue, alive, budget; see grant.lua and budget.lua
-- ARGV  1 lease  ms
--       and for each semaphore the number of units, and every unit of every permit to refresh, for each budget as `ID TOTAL`
-- Returns the server's time in ms and, for each unit, 1 (held) or 0 (lost). A reservation of a permit is never lost: it was
-- spent, and its permit goes on.

local now, micros = clock()
local lease, ended = tonumber(ARGV[1]), {}
local own = tonumber(string.match(ARGV[3], '^%w+%.%w+%.%w+%.%w+%.%w+%.%w+%.(%w+)'), 36)
local is_provisional = lease < own
local free, leave, advance, finish, revocation_of, clamp, waiting_in, drop, enter, tell_to_poll,
  grant, hold, flow_of, last_of, settle, is_reserved = granting(now, micros, 0, ended, is_provisional)
local option, expires_at = is_provisional and 'GT' or 'XX', text(now + lease)
local answer, at = {now}, 2
for key = 1, #KEYS, 4 do
  local held, queue, alive, last = KEYS[key], KEYS[key + 1], KEYS[key + 2], at + ARGV[at]
  local semaphore = {held = held, queue = queue, alive = alive, token = KEYS[key + 3]}
  semaphore.used, ended[held] = count_held(held, now)
  local budget, fields = budgets[held], {}
  for arg = at + 1, last do
    local id, total = string.match(ARGV[arg], '^(%S+) ?(%d*)$')
    local is_held = budget and is_reserved(budget, id)
      or not budget and semaphore.used > 0 and tonumber(call('ZSCORE', held, id) or 0) > now
    if is_held then
      call('ZADD', held, 'XX', option, expires_at, id)
    end
    if is_held and budget and not is_provisional then
      local _, settled = settle(budget, id, tonumber(total))
      fields[#fields + 1], fields[#fields + 2] = field_of(budget, id), text(settled)
    end
    answer[#answer + 1] = (is_held or budget and not is_provisional) and 1 or 0
  end
  if budget and not budget.is_empty then
    save(budget, unpack(fields))
    outlive(budget, lease)
  elseif semaphore.used > 0 and not budget and call('PTTL', held) < lease * (LEASES - 1) then
    call('PEXPIRE', held, text(lease * LEASES))
    call('PEXPIRE', semaphore.token, text(lease * LEASES))
  end
  finish(held, queue, alive)
  at = last + 1
end
return answer
