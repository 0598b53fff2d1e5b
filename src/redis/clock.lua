-- The server's clock, read once, so that a call sees one instant: `micros` in microseconds, `now`
-- in ms.
local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = (micros - micros % 1000) / 1000
