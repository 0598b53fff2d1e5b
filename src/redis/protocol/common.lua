-- What all scripts have in common.

-- No key outlives its last use for longer than so many leases.
local LEASES = 8

local call = redis.call

-- Implicit conversion of numbers to text is slow, and loses digits of large ones.
local function text(number)
  return string.format('%d', number)
end

-- The server's clock in ms and in microseconds. Read once, so that a call sees one instant.
local function clock()
  local time = call('TIME')
  local micros = time[1] * 1000000 + time[2]
  return (micros - micros % 1000) / 1000, micros
end

