-- several: decides several requests of one organization in one call. An experiment: `docs/design/decisions/10-…` says
-- what it gave, and why no gateway sends it.
--
-- KEYS[1]  the organization's record; then for each decision the record of its key and that of the key's user
-- ARGV[1]  the gateway's field in KEYS[1]; then for each decision its request, as in decide.lua, without unreported
-- uses
--
-- Result: the packed replies of decide.lua, one after the other; or a word for what sends the gateway back to single
-- ones.

local NO_RECORD = ('\0'):rep(8)
local ADMITTED, UNKNOWN, REVOKED, EXPIRED, USER_REMOVED, RATE_LIMITED, TOO_MANY, UNREGISTERED = 0, 1, 2, 3, 4, 7, 8, 9
local pack, unpack, call = struct.pack, struct.unpack, redis.call
local now = nil
local org = call('HMGET', KEYS[1], 'live', ARGV[1])
if not org[1] then return 'unknown' end
local its_version, taken, first_end, alive = unpack('<c8ddd', org[1])
local held, reported, its_lease, its_generation
if org[2] then held, reported, its_lease, its_generation = unpack('<dddd', org[2]) end
local changed = false
local results = {}
local lease_of, generation_of
for i = 2, #ARGV do
  local key_name, user = KEYS[2 * i - 2], KEYS[2 * i - 1]
  local key_version, org_version, user_version, code, valid_until, requests, per, capacity, limit, unreported,
    released, lease,
    generation, may_register, chosen, age = unpack('<c8c8c8ddddddddddddd', ARGV[i])
  now = now or time(chosen)
  local quota = ARGV[i]:sub(41, 64)
  local key = call('HMGET', key_name, 'live', 'metered')
  local live, metered = key[1], key[2]
  local version, level, at, _, uses, used = unpack('<c8ddddd', live)
  if version ~= key_version or its_version ~= org_version or (call('HGET', user, 'version')
      or NO_RECORD) ~= user_version then
    return 'stale'
  end
  if not its_generation then
    held, reported, its_lease, its_generation = 0, 0, 0, generation
    if may_register == 0 then its_generation = -1 end
  end
  if code == ADMITTED and its_generation ~= generation then return 'unregistered' end
  if now >= valid_until and code ~= REVOKED then code = EXPIRED end
  local before = at
  if metered == quota then
    level, at = refilled(level, at, requests, capacity, now)
  else
    level, at = settled(level, at, metered, requests, per, capacity, age, now)
  end
  local set_back = at < before and code ~= REVOKED and code ~= EXPIRED and code ~= USER_REMOVED
  if released > 0 then
    released = math.min(released, held)
    taken, held = taken - released, held - released
    changed = true
  end
  if code == ADMITTED then
    if level < per then code = RATE_LIMITED
    elseif taken >= limit then
      if must_recount(first_end, alive, now, lease) then
        local held_by_others
        held_by_others, first_end = recount(KEYS[1], ARGV[1], now, lease, alive)
        taken = held_by_others + held
        changed = true
      end
      if taken >= limit then code = TOO_MANY end
    end
  end
  if code == ADMITTED then
    level, uses, used = level - per, uses + 1, now
    taken, held = taken + 1, held + 1
    changed = true
    if not org[2] then first_end = math.min(first_end, now + lease) end
  end
  if code == ADMITTED or set_back then
    call('HSET', key_name, 'live', pack('<c8ddddd', version, level, at, per, uses, used))
    if metered ~= quota then call('HSET', key_name, 'metered', quota) end
  end
  lease_of, generation_of = lease, generation
  results[i - 1] = pack('<ddddd', code, level, taken, uses, held)
end
if changed then
  call('HSET', KEYS[1], 'live', pack('<c8ddd', its_version, taken, first_end, now), ARGV[1], pack('<dddd', held, now,
      lease_of, generation_of))
end
return table.concat(results)
