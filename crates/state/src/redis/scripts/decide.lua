-- decide: decides one request, all or nothing.
--
-- KEYS[1]  the key's record, a hash; `live` is (version, bucket level, bucket time, per, uses, time of the last use),
--          and `metered` the quota (requests, per, capacity) that the bucket was measured with
-- KEYS[2]  the organization's record, a hash; `live` is (version, slots taken, first end of a lease, last sign of
--          life); and the leases (slot_leases.lua)
-- KEYS[3]  the record of the key's user, a hash; `version` changes with its permissions and its removal. A read of the
--          records leaves it out, because it does not know the user yet
-- KEYS[4]  only of a key with a limit of requests in flight of its own: its slots and their leases (slot_leases.lua)
-- and, behind these, only with something to report: what was reported, a hash that expires a day after the last report
-- ARGV[1]  the gateway's field in KEYS[2], and in the record of the key's slots
-- ARGV[2]  the request: three versions and thirteen integers, packed as the `unpack` below names them; of a key with a
--          limit of its own, four more about its slots, as `key_slots` names them; of a gateway that has taken no slot
--          for a while, two about the server's signs of life (slot_leases.lua); and, of a request that takes more
--          than one token, how many
-- ARGV[3]  only with unreported uses: the name under which they are reported, and, if they took more than a token each,
--          by how many tokens more, packed; empty without unreported uses
-- ARGV[4]  only of a key with a budget: which record has its counter (the number of its key), its units, those that
--          the request reserves, start and end of the period, units that came back, units by which responses exceeded
--          their reservations, start of the period of both, and the name under which they are reported. The counter is
--          the field `spent` of the record: start of the period, and units
--
-- The gateway has read the three records before and sends their versions. What never changes within a version (digests,
-- revocation, user, permissions, suspension, limits) it has evaluated itself, and the result is part of the request. So
-- none of it is parsed here, and yet it is current at this very moment, or the reply is `stale`.
--
-- A code other than `admitted` in the request is a refusal by the records, or a read of the status (10): no slot is
-- taken, and none needs a valid lease.
--
-- Result: packed (code, bucket level, slots taken, uses, slots this gateway holds), and, of a key with a limit of its
-- own, (slots of the key that are taken, those of them that this gateway holds), and, of a key with a budget, (units
-- that are spent, start of the period); or, for `stale` and for a read, the three records without the leases. With
-- `unregistered`, 1 in place of the level means the lease of the key; with `other period` it is the time.
--
-- The slots of the key are looked at before those of the organization, and both are taken, or none.
--
-- Guarantee: everything is checked, then everything is written. A refusal writes only
--   - what the gateway reports with the request: released slots, and uses that it admitted offline;
--   - slots that were counted anew, and, four times in a lease at most, that the server answered;
--   - the bucket's time when the clock was set back: otherwise an empty bucket would not refill until the old time.
-- Unreported uses are a total that only grows. So the report can be repeated, also late, and each use counts once.

assert(#KEYS >= 2 and #KEYS <= 5 and #ARGV >= 2 and #ARGV <= 4,
  'decide takes 2 or 3 keys and 2 arguments, a key more for slots of the key and for what is reported, and 2 arguments')

-- Stands for the version of a user's record that does not exist.
local NO_RECORD = ('\0'):rep(8)
local ADMITTED, UNKNOWN, REVOKED, EXPIRED, USER_REMOVED, RATE_LIMITED, TOO_MANY, UNREGISTERED = 0, 1, 2, 3, 4, 7, 8, 9
local KEY_TOO_MANY, QUOTA_EXHAUSTED, OTHER_PERIOD = 16, 18, 19

local pack, unpack, call = struct.pack, struct.unpack, redis.call
local key_version, org_version, user_version, code, valid_until, requests, per, capacity, limit, unreported, released,
  lease,
  generation, may_register, chosen, age = unpack('<c8c8c8ddddddddddddd', ARGV[2])
-- The quota in force as `metered` has it: requests, per and capacity, as they were packed.
local quota = ARGV[2]:sub(41, 64)
local length = #ARGV[2] - #ARGV[2] % 16
local cost = #ARGV[2] > length and unpack('<d', ARGV[2], length + 1) or 1

-- What a total that was reported under this name is more than the one before; 0 when that was no smaller.
local function newly_reported(name, total)
  local reported_uses = KEYS[#KEYS]
  local more = math.max(0, total - (call('HGET', reported_uses, name) or 0))
  if more > 0 then
    call('HSET', reported_uses, name, string.format('%.0f', total))
    call('EXPIRE', reported_uses, 86400)
  end
  return more
end

local key = call('HMGET', KEYS[1], 'live', 'metered')
local live, metered = key[1], key[2]
local org = call('HMGET', KEYS[2], 'live', ARGV[1])
if not live or not org[1] then return pack('<ddddd', UNKNOWN, 0, 0, 0, 0) end

local version, level, at, _, uses, used = unpack('<c8ddddd', live)
local its_version, taken, first_end, alive = unpack('<c8ddd', org[1])
-- The user's record is in the hash slot of the other two, and its name follows from them.
local user = KEYS[3] or KEYS[2]:sub(1, -4) .. 'user:' .. (call('HGET', KEYS[1], 'user') or '')
local of_user = call('HGET', user, 'version') or NO_RECORD
if version ~= key_version or its_version ~= org_version or of_user ~= user_version then
  -- Of the organization's record what a gateway decides by, as HGETALL lists it: every gateway may have a lease in it.
  local names = { 'id', 'tag', 'name', 'created', 'suspended', 'concurrent', 'plan', 'budget', 'live' }
  local values = call('HMGET', KEYS[2], 'id', 'tag', 'name', 'created', 'suspended', 'concurrent', 'plan', 'budget',
    'live')
  local fields = {}
  for at, name in ipairs(names) do
    if values[at] then fields[#fields + 1], fields[#fields + 2] = name, values[at] end
  end
  return { call('HGETALL', KEYS[1]), fields, call('HGETALL', user) }
end

-- The lease of this gateway. One of another generation is fenced: this command was sent before a resync.
local now = time(chosen)
local held, reported, its_lease, its_generation = 0, 0, 0, generation
if org[2] then
  held, reported, its_lease, its_generation = unpack('<dddd', org[2])
elseif may_register == 0 then
  its_generation = -1
end
if code == ADMITTED and its_generation ~= generation then return pack('<ddddd', UNREGISTERED, 0, 0, 0, 0) end
local there = now
if length % 32 == 16 then
  local since, last = unpack('<dd', ARGV[2], length - 15)
  there = there_since(since, last, now, lease)
end
local of_key = nil
if length >= 160 then
  of_key = key_slots(KEYS[4], ARGV[1], ARGV[2]:sub(129), now, lease)
  if code == ADMITTED and of_key.its_generation ~= of_key.generation then
    return pack('<ddddd', UNREGISTERED, 1, 0, 0, 0)
  end
end

local budget, counter, start, spent, is_spent_changed = ARGV[4], nil, 0, 0, false
local place, units, reserve, begin, finish, returned, exceeded, since, report
if budget then
  place, units, reserve, begin, finish, returned, exceeded, since, report = unpack('<ddddddddc8', budget)
  if code == ADMITTED and (now < begin or now >= finish) then return pack('<ddddd', OTHER_PERIOD, now, 0, 0, 0) end
  counter = place == 3 and user or KEYS[place]
  start = begin
  local kept = call('HGET', counter, 'spent')
  if kept then
    local its_start, its = unpack('<dd', kept)
    -- A later period wins: a clock that was set back finds what was spent in it.
    if its_start >= begin then start, spent = its_start, its end
  end
  if returned + exceeded > 0 then
    returned, exceeded = newly_reported(report .. 'r', returned), newly_reported(report .. 'x', exceeded)
    if since == start and returned + exceeded > 0 then
      spent, is_spent_changed = math.max(0, spent + exceeded - returned), true
    end
  end
end

if now >= valid_until and code ~= REVOKED then code = EXPIRED end
local before = at
if metered == quota then
  level, at = refilled(level, at, requests, capacity, now)
else
  level, at = settled(level, at, metered, requests, per, capacity, age, now)
end
local set_back = at < before and code ~= REVOKED and code ~= EXPIRED and code ~= USER_REMOVED
if unreported > 0 then
  local name = ARGV[3]:sub(1, 8)
  unreported = newly_reported(name, unreported)
  local excess = #ARGV[3] > 8 and newly_reported(name .. '+', unpack('<d', ARGV[3], 9)) or 0
  -- Below zero if need be: these uses were admitted without this bucket, and are repaid.
  level = math.max(lowest(capacity), level - (unreported + excess) * per)
  uses, used = uses + unreported, now
end
if released > 0 then
  released = math.min(released, held)
  taken, held = taken - released, held - released
end

if code == ADMITTED and level < cost * per then code = RATE_LIMITED end
if budget and code == ADMITTED and spent + reserve > units then code = QUOTA_EXHAUSTED end
if of_key then
  count_key_slots(of_key, code == ADMITTED, there, now, lease)
  if code == ADMITTED and of_key.taken >= of_key.limit then code = KEY_TOO_MANY end
end
-- Writing a sign of life looks for the end of the one before. Without a slot that is taken, none can be lost.
local counted = false
if taken > 0 and (code == ADMITTED or released > 0) and must_recount(first_end, alive, there, now, lease) then
  local held_by_others, was_away
  held_by_others, first_end, was_away = recount(KEYS[2], ARGV[1], now, lease, alive, there)
  taken, counted = held_by_others + held, true
  if was_away then reported = there end
  if org[2] then first_end = math.min(first_end, reported + its_lease) end
end
if code == ADMITTED and taken >= limit then code = TOO_MANY end

if code == ADMITTED then
  level, uses, used = level - cost * per, uses + 1, now
  taken, held = taken + 1, held + 1
  if budget then spent, is_spent_changed = spent + reserve, true end
  if not org[2] then first_end = math.min(first_end, now + lease) end
end
if code == ADMITTED or unreported > 0 or set_back then
  call('HSET', KEYS[1], 'live', pack('<c8ddddd', version, level, at, per, uses, used))
  if metered ~= quota then call('HSET', KEYS[1], 'metered', quota) end
end
if is_spent_changed then call('HSET', counter, 'spent', pack('<dd', start, spent)) end
-- A report of releases renews the lease like an admission; a plain refusal does not write the organization's record.
if code == ADMITTED or released > 0 then
  local entry = pack('<dddd', held, now, lease, generation)
  call('HSET', KEYS[2], 'live', pack('<c8ddd', its_version, taken, first_end, now), ARGV[1], entry)
elseif counted or (code == TOO_MANY and now - alive > lease / 4) then
  call('HSET', KEYS[2], 'live', pack('<c8ddd', its_version, taken, first_end, now))
end
local reply = pack('<ddddd', code, level, taken, uses, held)
if of_key then
  write_key_slots(of_key, code == ADMITTED, code == KEY_TOO_MANY, now, lease)
  reply = reply .. pack('<dd', of_key.taken, of_key.held)
end
return budget and reply .. pack('<dd', spent, start) or reply
