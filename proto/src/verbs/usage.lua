-- usage: lists the held units, the waiters and the pause of a semaphore, page by page.
--
-- Promises: it writes nothing. A member that stays while all pages are read is on at least one of them. Ended units may
-- be listed too. A semaphore with fewer members than a page is on one page.
--
-- KEYS  held, queue, alive; see grant.lua
-- ARGV  1 count  the approximate number of members of each key on a page
--       2 3, the number of arguments that follow
--       and for each key
--         cursor  0 for the first page, then the cursor that the last page has returned. -: the key is read to its end
-- Returns the server's time in ms, and for each key the cursor of the next page, and a list of the members with their
-- scores.

local now = clock()
local page = {now}
for number, key in ipairs(KEYS) do
  local cursor = ARGV[2 + number]
  local scanned = {'-', {}}
  if cursor ~= '-' then
    scanned = call('ZSCAN', key, cursor, 'COUNT', ARGV[1])
    scanned[1] = scanned[1] == '0' and '-' or scanned[1]
  end
  page[1 + number] = scanned
end
return page
