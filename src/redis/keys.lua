-- What the three scripts have in common.
--
-- A call is for one semaphore or for many, one after the other. KEYS has for each:
--
-- held    unit of a permit -> lease end, ms of the server's clock
-- line    permit that waits -> ticket, its place
-- beat    permit that waits -> until when its owner counts as alive, ms
-- ticket  the last ticket
--
-- ARGV has, behind what is for all, how many arguments follow for the first semaphore, and those;
-- then the same for the next.
--
-- A permit's id tells all that is needed to grant it: PROCESS.SERIAL.LIMIT.WEIGHT.LEASE. Its
-- units are the id itself and, for those after the first, id:2, id:3 and so on.

-- No key outlives its last use for longer than so many leases.
local LEASES = 8

local call = redis.call

-- Numbers that turn into text by themselves take long to, and lose digits where they are large.
local function text(number)
  return string.format('%d', number)
end
