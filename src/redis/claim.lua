-- What is not as usual in an acquire: somebody waits, it is full, or a permit has several units.
-- It stands where it is needed, for the same reason as `line.lua`.

-- include line.lua

-- Returns the first item of the answer, and how many units are held then.
claim = function(used, id, wait)
  local limit, weight = string.match(id, '^%w+%.%w+%.(%d+)%.(%d+)%.')
  limit, weight = tonumber(limit), tonumber(weight)
  local head
  used, head = advance(used)
  if used + weight <= limit and not head or call('ZSCORE', held, id) then
    return take(id, weight, used, ends, lease)
  end

  local alive, longest, place = string.match(wait, '^(%d+) (%d+) (%d+)$')
  if not alive then
    return 0, used
  end

  local known = call('ZSCORE', line, id)
  if not known then
    if is_full(tonumber(longest)) then
      return -1, used
    end
    known = place ~= '0' and place or text(draw(lease))
    call('ZADD', line, known, id)
  end
  call('ZADD', beat, text(now + alive), id)
  -- To look is cheaper than to prolong, and both live as long.
  if call('PTTL', beat) < lease * (LEASES - 1) then
    call('PEXPIRE', line, life)
    call('PEXPIRE', beat, life)
  end

  local look = -1
  if call('ZRANGE', line, 0, 0)[1] == id then
    local first = call('ZRANGE', held, 0, 0, 'WITHSCORES')
    look = first[2] and first[2] - now or 0
  end
  return {tonumber(known), look, tonumber(call('GET', ticket) or micros)}, used
end
