-- Functions and constants of all scripts.

-- A key expires this many leases after its last use.
local LEASES = 8

local call = redis.call

-- Converts an integer to text. Implicit conversion is slow, and loses digits of large numbers.
local function text(number)
  return string.format('%d', number)
end

-- The server's clock in ms and in microseconds. Read once, so that a call sees one instant.
local function clock()
  local time = call('TIME')
  local micros = time[1] * 1000000 + time[2]
  return (micros - micros % 1000) / 1000, micros
end

