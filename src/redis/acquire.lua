-- acquire: takes the units of a permit if they fit under its limit and nobody waits before it;
-- else joins the line, if it may. So for each claim of each semaphore, one after the other.
--
-- Promises: at any instant of the server's clock, at most `limit` units are held. The same id
-- counts once, however often it is sent, and keeps its place in the line. Every permit gets a
-- token greater than those before it.
--
-- ARGV  1 lease  ms
--       and for each semaphore, three for each of its claims:
--         id     the permit's id
--         limit  of units that may be held together; 0 if the permit has several units itself,
--                so that it is never as usual
--         wait   how it waits, nothing if it does not: `ALIVE LONGEST PLACE`, the ms for which
--                its owner counts as alive, how many may wait, and the ticket that it was given
--                before or 0
-- Returns for each claim two items:
--         token, units held now     it is granted
--         0, units held now         it is full
--         -1, units held now        the line is full
--         {ticket, ms, last}, units held now
--                                   it waits; it is the head if ms is not -1, and should look
--                                   again then, when the earliest lease ends. It holds nothing,
--                                   so no token up to the last is its any more

-- include keys.lua
-- include clock.lua
-- include lines.lua

local lease = tonumber(ARGV[1])
local upto, ends, life = text(now), text(now + lease), text(lease * LEASES)

local answer, at = {}, 2
for key = 1, #KEYS, 4 do
  local held, line, beat, ticket = KEYS[key], KEYS[key + 1], KEYS[key + 2], KEYS[key + 3]
  local used = call('ZCARD', held)
  -- The first write removes, because only then a server whose memory is full accepts the others.
  if used > 0 or key == 1 then
    used = used - call('ZREMRANGEBYSCORE', held, '-inf', upto)
  end
  local waited_for = anybody_waits and call('EXISTS', line) == 1

  local last, claim = at + ARGV[at], nil
  for arg = at + 1, last, 3 do
    local id, token = ARGV[arg], nil
    if not waited_for and used < tonumber(ARGV[arg + 1]) then
      -- As usual: one unit of a key for which nobody waits. The same as `take`, which see.
      local added = call('ZADD', held, ends, id)
      token = call('INCR', ticket)
      if token == 1 then
        token = micros
        call('SET', ticket, text(token), 'PX', life)
      elseif token % 4 == 0 then
        call('PEXPIRE', ticket, life)
      end
      if used == 0 or token % 4 == 0 then
        call('PEXPIRE', held, life)
      end
      used = used + added
    else
      if not claim then
        -- include claim.lua
      end
      token, used = claim(used, id, ARGV[arg + 2])
      waited_for = call('EXISTS', line) == 1
      anybody_waits = true
    end
    answer[#answer + 1], answer[#answer + 2] = token, used
  end
  at = last + 1
end
return answer
