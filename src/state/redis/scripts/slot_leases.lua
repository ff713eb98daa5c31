-- Slot leases: the gateways that hold slots of an organization. Each has a field `h:…` of the organization's record with
-- (slots held, time of the last report, lease time, generation), times in microseconds.

-- The end of the first lease when there is none.
local NEVER = 9007199254740991

-- Removes the expired leases of all gateways but `own`. Returns the slots that the other gateways hold, and the time
-- before which none of their leases expires. A last report in the future was before the clock was set back: that lease
-- begins anew.
local function others(org, own, now)
  local fields = redis.call('HGETALL', org)
  local held, first_end = 0, NEVER
  for i = 1, #fields, 2 do
    local name = fields[i]
    if name ~= own and name:sub(1, 2) == 'h:' then
      local slots, reported, lease, generation = struct.unpack('<dddd', fields[i + 1])
      if reported > now then
        reported = now
        redis.call('HSET', org, name, struct.pack('<dddd', slots, reported, lease, generation))
      end
      if now - reported > lease then
        redis.call('HDEL', org, name)
      else
        held, first_end = held + slots, math.min(first_end, reported + lease)
      end
    end
  end
  return held, first_end
end
