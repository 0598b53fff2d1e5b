-- The common part of listing and buying: both scripts begin with this file.
--
-- KEYS  1 funds     hash: account -> coins
--       2 items     set: the items of ARGV's account
--       3 prices    sorted set: id of a listing -> price
--       4 listings  hash: id of a listing -> its message
--       5 fence     hash: item -> token of the last holder of its lock that changed something
--       6 sold      string: the message of the trade, for a while
-- ARGV  1 account   that lists or buys
--       2 item      that is listed or bought
--       3 token     of the item's lock
--       4 id        of the listing
--       5 price
--       6 seller
--       7 message   to publish
--       8 channel   to publish on
--       9 known     seconds for which a sold listing is known as sold, not as unknown
--       10... newborn  coins and items of a new account

local funds, items, prices, listings, fence, sold = unpack(KEYS)
local account, item, token, id, price, seller, message, channel, known = unpack(ARGV)

-- True if a later holder of the item's lock has changed something, so that this holder is too late.
local function is_late()
  local last = redis.call('HGET', fence, item)
  return last and tonumber(last) > tonumber(token)
end

-- Gives a new account its coins and items. This is the first write of each script: if memory is full it fails, and
-- nothing has changed.
local function ensure_account()
  if redis.call('HSETNX', funds, account, ARGV[10]) == 1 then
    redis.call('SADD', items, unpack(ARGV, 11))
  end
end
