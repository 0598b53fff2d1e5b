-- Whether somebody waits for any of the semaphores: mostly nobody does, and one look tells.
local lines = {KEYS[2]}
for key = 6, #KEYS, 4 do
  lines[#lines + 1] = KEYS[key]
end
local anybody_waits = call('EXISTS', unpack(lines)) > 0
