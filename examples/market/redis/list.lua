-- list: offers an item for sale. KEYS and ARGV: see common.lua.
--
-- Promise: the item leaves its owner's inventory and is for sale, or the only change is that the owner's account is
-- created. A lock holder that was overtaken changes nothing.
--
-- Returns 'done', 'late', or 'missing' when the account has no such item.

if is_late() then
  return 'late'
end
ensure_account()
if redis.call('SREM', items, item) == 0 then
  return 'missing'
end
redis.call('HSET', fence, item, token)
redis.call('ZADD', prices, price, id)
redis.call('HSET', listings, id, message)
redis.call('PUBLISH', channel, message)
return 'done'
