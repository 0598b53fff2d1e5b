-- The keys of a semaphore, the same for every script:
--
-- held    unit of a permit -> lease end, ms of the server's clock
-- line    permit that waits -> ticket, its place
-- beat    permit that waits -> until when its owner counts as alive, ms
-- ticket  the last ticket
--
-- A permit's id tells all that is needed to grant it: PROCESS.SERIAL.LIMIT.WEIGHT.LEASE. Its
-- units are the id itself and, for those after the first, id:2, id:3 and so on.
local held, line, beat, ticket = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- No key outlives its last use for longer than so many leases.
local LEASES = 8
