-- Holders: the gateways that hold slots of an organization, each a field `h:…` of its record with
-- (slots held, when it was last heard of, its lease, its epoch), times in microseconds.

-- The time of a lease's end when there is no lease.
local NEVER = 9007199254740991

-- Forgets every holder but `own` that was not heard of for its lease. Gives the slots that the others hold, and the
-- time before which no other lease ends. A holder heard of in the future was heard of before the clock was set back:
-- its lease begins anew.
local function others(org, own, now)
  local fields = redis.call('HGETALL', org)
  local held, ends = 0, NEVER
  for i = 1, #fields, 2 do
    local name = fields[i]
    if name ~= own and name:sub(1, 2) == 'h:' then
      local slots, heard, lease, epoch = struct.unpack('<dddd', fields[i + 1])
      if heard > now then
        heard = now
        redis.call('HSET', org, name, struct.pack('<dddd', slots, heard, lease, epoch))
      end
      if now - heard > lease then
        redis.call('HDEL', org, name)
      else
        held, ends = held + slots, math.min(ends, heard + lease)
      end
    end
  end
  return held, ends
end
