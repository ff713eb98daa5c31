-- Slot leases: the gateways that hold slots of an organization. Each has a field `h:…` of the organization's record
-- with (slots held, time of the last report, lease time, generation), times in microseconds, and one or two marks while
-- the lease goes on without a report.
--
-- The `live` part of the record is (version, slots taken, first end, last sign of life):
--   - slots taken: the sum over all leases. A script changes it by what its own gateway changes, so a report costs the
--     same with one gateway and with a thousand.
--   - first end: no lease ends before it.
--   - last sign of life: a time at which the server answered about the slots. Refusals note it a quarter of a lease
--     after the last one, all else at once.
--
-- All leases are read only when one may have ended, when the clock was set back, and when the server may have been
-- away. It was away when there was no sign of life for half a lease: it hung, was partitioned from all gateways or had
-- no memory left, or its clock stepped forward. Then no gateway could report, and the end of a lease says nothing about
-- its gateway: every lease begins anew. The mark tells which leases did. They end when no report comes this time, so
-- the slots of gateways that are really dead are free a lease later. A server that is away again within half a lease
-- left no time to report either: then a lease begins anew once more, and gets its second mark. There is no third,
-- because rare requests look like many absences.

-- The end of the first lease when there is none.
local NEVER = 9007199254740991

-- Whether all leases have to be read at `now`.
local function must_recount(first_end, alive, now, lease)
  if now >= first_end then return true end
  return now < alive or now - alive > lease / 2
end

-- Reads all leases, and removes those that have ended, but for the one of `own`. Returns the slots that the other
-- gateways hold, the time before which none of their leases ends, and whether the server was away. A last report in the
-- future was before the clock was set back: that lease begins anew, too.
local function recount(org, own, now, lease, alive)
  local fields = redis.call('HGETALL', org)
  local was_away = now - alive > lease / 2
  local held, first_end = 0, NEVER
  for i = 1, #fields, 2 do
    local name, entry = fields[i], fields[i + 1]
    if name:sub(1, 2) == 'h:' then
      local slots, reported, its_lease, generation = struct.unpack('<dddd', entry)
      local extends = was_away and (#entry == 32 or #entry == 33 and alive - reported < its_lease / 2)
      if extends or reported > now then
        local mark = entry:sub(33)
        if extends then mark = mark .. '+' end
        reported = now
        redis.call('HSET', org, name, struct.pack('<dddd', slots, reported, its_lease, generation) .. mark)
      end
      if name ~= own then
        if now - reported > its_lease then
          redis.call('HDEL', org, name)
        else
          held, first_end = held + slots, math.min(first_end, reported + its_lease)
        end
      end
    end
  end
  return held, first_end, was_away
end
