-- Slot leases: the gateways that hold slots of an organization, or of a key with a limit of its own. Each has a field
-- `h:…` with (slots held, time of the last report, lease time, generation), times in microseconds, and one or two marks
-- while the lease goes on without a report. Those of an organization are in its record. Those of a key are in a record
-- of their own, which begins with the first lease, is deleted with the last one, and expires a day after the last
-- report, for gateways that have all died.
--
-- The `live` part of the record is (version, slots taken, first end, last sign of life), without a version for a key:
--   - slots taken: the sum over all leases. A script changes it by what its own gateway changes, so a report costs the
--     same with one gateway and with a thousand.
--   - first end: no lease ends before it.
--   - last sign of life: a time at which the server answered about the slots. Refusals note it a quarter of a lease
--     after the last one, all else at once.
--
-- All leases are read only when one may have ended, when the clock was set back, and when the server may have been
-- away. It was away when there was no sign of life for half a lease: it hung, was partitioned from all gateways or had
-- no memory left, or its clock stepped forward. Then no gateway could report, and the end of a lease says nothing about
-- its gateway: every lease begins anew, at the end of the absence. The mark tells which leases did. They end when no
-- report comes this time, so the slots of gateways that are really dead are free a lease later. A server that is away
-- again within half a lease left no time to report either: then a lease begins anew once more, and gets its second
-- mark. There is no third, because a gateway may not know the server's signs of life.
--
-- An organization may be quiet while its server is there. So the signs of life that count are also those of the server:
-- the heartbeats of all gateways to it (sign_of_life.lua). A gateway sends what it has read there with what it asks
-- about an organization or key that it has not heard of for a while.

-- The end of the first lease when there is none.
local NEVER = 9007199254740991

-- The time since which the server is there without a gap: by the heartbeats, the last of which is no older than half a
-- lease; else this moment.
local function there_since(since, last, now, lease)
  if last <= now and now - last <= lease / 2 then return since end
  return now
end

-- Returns whether all leases have to be read at `now`. The server is there since `there`.
local function must_recount(first_end, alive, there, now, lease)
  if now >= first_end then return true end
  return now < alive or there - alive > lease / 2
end

-- Reads all leases, and removes those that have ended, but for the one of `own`. Returns the slots that the other
-- gateways hold, the time before which none of their leases ends, and whether the server was away. A last report in the
-- future was before the clock was set back: that lease begins anew, too.
local function recount(org, own, now, lease, alive, there)
  local fields = redis.call('HGETALL', org)
  local was_away = there - alive > lease / 2
  local held, first_end = 0, NEVER
  for i = 1, #fields, 2 do
    local name, entry = fields[i], fields[i + 1]
    if name:sub(1, 2) == 'h:' then
      local slots, reported, its_lease, generation = struct.unpack('<dddd', entry)
      local extends = was_away and (#entry == 32 or #entry == 33 and alive - reported < its_lease / 2)
      if extends or reported > now then
        local mark = entry:sub(33)
        if extends then mark = mark .. '+' end
        reported = extends and there or now
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

-- Stands for the version in the record of a key's slots.
local NO_VERSION = ('\0'):rep(8)
-- Lifetime of the record of a key's slots after the last report, in seconds: longer than any lease.
local LIFETIME = 86400

-- The slots of a key, as a decision reads them: its record, the gateway's field in it, and the gateway's report, packed
-- (limit, slots released, generation, 1 when the gateway may create its lease).
local function key_slots(record, field, report, now, lease)
  local slots = { record = record, field = field, held = 0, its_lease = lease }
  slots.taken, slots.first_end, slots.alive = 0, NEVER, now
  slots.limit, slots.released, slots.generation, slots.may_register = struct.unpack('<dddd', report)
  local fields = redis.call('HMGET', record, 'live', field)
  local _
  if fields[1] then _, slots.taken, slots.first_end, slots.alive = struct.unpack('<c8ddd', fields[1]) end
  if fields[2] then
    slots.has_lease = true
    slots.held, slots.reported, slots.its_lease, slots.its_generation = struct.unpack('<dddd', fields[2])
  elseif slots.may_register == 1 then
    slots.its_generation = slots.generation
  end
  return slots
end

-- Applies the releases of the report; then counts the slots anew if need be, for a decision that may take one.
local function count_key_slots(slots, may_take, there, now, lease)
  slots.released = math.min(slots.released, slots.held)
  slots.taken, slots.held = slots.taken - slots.released, slots.held - slots.released
  local is_due = slots.taken > 0 and (may_take or slots.released > 0)
  if is_due and must_recount(slots.first_end, slots.alive, there, now, lease) then
    local held_by_others, first_end, was_away = recount(slots.record, slots.field, now, lease, slots.alive, there)
    slots.taken, slots.first_end, slots.counted = held_by_others + slots.held, first_end, true
    if was_away then slots.reported = there end
    if slots.has_lease then slots.first_end = math.min(first_end, slots.reported + slots.its_lease) end
  end
end

-- Writes the slots of a key after a decision that has taken one, or was refused for lack of one, or neither.
local function write_key_slots(slots, has_taken, is_refused, now, lease)
  if has_taken then
    slots.taken, slots.held = slots.taken + 1, slots.held + 1
    if not slots.has_lease then slots.first_end = math.min(slots.first_end, now + lease) end
  end
  local live = struct.pack('<c8ddd', NO_VERSION, slots.taken, slots.first_end, now)
  if has_taken or slots.released > 0 then
    local entry = struct.pack('<dddd', slots.held, now, lease, slots.generation)
    redis.call('HSET', slots.record, 'live', live, slots.field, entry)
    redis.call('EXPIRE', slots.record, LIFETIME)
  elseif slots.counted or (is_refused and now - slots.alive > lease / 4) then
    redis.call('HSET', slots.record, 'live', live)
  end
end
