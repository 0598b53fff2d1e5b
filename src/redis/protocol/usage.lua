-- usage: lists what is held of a semaphore, and what waits for it, some at a time.
--
-- Promises: it writes nothing. What has ended is not listed, whether or not it was removed. What is there while all
-- pages are read is on one of them at least. A semaphore of fewer units, and of fewer claims that wait, than a page
-- has is on one page.
--
-- KEYS  held, queue, alive; see grant.lua
-- ARGV  1 count  how many units a page has, and how many claims that wait, about
--       2 2, the number of arguments that follow
--       3 held   where the units go on: 0 at first, - if there are no more
--       4 queue  where the claims that wait go on
-- Returns the server's time in ms; of the units, and of the claims that wait, a list each: where they go on; then
-- each unit and its end, or each claim, until when it counts as alive, and its place in the queue.

local held, queue, alive = KEYS[1], KEYS[2], KEYS[3]
local count = ARGV[1]
local now = clock()

-- The members on the next page, in pairs with their scores, and where they go on.
local function page(key, cursor)
  if cursor == '-' then
    return {}, cursor
  end
  local scanned = call('ZSCAN', key, cursor, 'COUNT', count)
  return scanned[2], scanned[1] == '0' and '-' or scanned[1]
end

local units, units_next = page(held, ARGV[3])
local listed = {units_next}
for at = 1, #units, 2 do
  if tonumber(units[at + 1]) > now then
    listed[#listed + 1], listed[#listed + 2] = units[at], units[at + 1]
  end
end

local ids, ids_next = page(queue, ARGV[4])
local waiting = {ids_next}
for at = 1, #ids, 2 do
  local alive_until = call('ZSCORE', alive, ids[at])
  if alive_until and tonumber(alive_until) > now then
    local last = #waiting
    waiting[last + 1], waiting[last + 2], waiting[last + 3] = ids[at], alive_until, ids[at + 1]
  end
end
return {now, listed, waiting}
