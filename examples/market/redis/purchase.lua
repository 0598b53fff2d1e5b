-- purchase: sells a listing. KEYS and ARGV: see common.lua.
--
-- Promise: coins, item and listing move together, or the only change is that the buyer's account is created. A listing
-- is sold once. A lock holder that was overtaken changes nothing.
--
-- Returns 'done', 'late', 'sold', or 'poor' when the account has too few coins.

if is_late() then
  return 'late'
end
if not redis.call('ZSCORE', prices, id) then
  return 'sold'
end
ensure_account()
if tonumber(redis.call('HGET', funds, account)) < tonumber(price) then
  return 'poor'
end
redis.call('HSET', fence, item, token)
redis.call('HINCRBY', funds, account, -price)
redis.call('HINCRBY', funds, seller, price)
redis.call('SADD', items, item)
redis.call('ZREM', prices, id)
redis.call('HDEL', listings, id)
redis.call('SET', sold, message, 'EX', known)
redis.call('PUBLISH', channel, message)
return 'done'
