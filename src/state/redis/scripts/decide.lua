-- decide: one request, all or nothing.
--
-- KEYS[1]  the key's record, a hash; `live` is (version, level, at, per, uses, last used)
-- KEYS[2]  the organization's record, a hash; `live` is (version, slots taken, when a lease may end), and holders
-- KEYS[3]  only with a debt: the debts that were paid, a hash that expires a day after the last of them
-- ARGV[1]  the holder's field in KEYS[2]
-- ARGV[2]  the question: two versions and twelve integers, packed as the `unpack` below names them
-- ARGV[3]  only with a debt: its name
--
-- The asker has read both records before and says which versions of them it knows: what never changes within a version
-- (digests, revocation, user, permissions, suspension, limits) it has judged itself, and its verdict is part of the
-- question. So nothing of it is parsed here, and yet it holds at this very moment, or the answer is `stale`.
--
-- A verdict other than `admitted` is a refusal by the records, or only a look (10): no slot is taken, and none settled.
--
-- Result: (code, level, slots taken, uses, slots the asker holds) packed, or for `stale` a table of both records.
-- Guarantee: everything is checked, then everything is written; a refusal writes nothing but what the asker settles
-- with it: slots it has released, and tokens it owes; what was counted anew; and the bucket's time, when the clock was set back: otherwise an
-- empty bucket would stand still until the old time is reached. A debt is a number of uses that only grows, so that it
-- can be told any number of times, also late, and what is told is paid once.

assert((#KEYS == 2 or #KEYS == 3) and #ARGV == #KEYS, 'decide takes 2 keys and 2 arguments, or with a debt 3 and 3')

local ADMITTED, UNKNOWN, REVOKED, EXPIRED, USER_REMOVED, RATE_LIMITED, TOO_MANY, UNREGISTERED = 0, 1, 2, 3, 4, 7, 8, 9

local pack, unpack, call = struct.pack, struct.unpack, redis.call
local key_version, org_version, verdict, valid_until, requests, per, capacity, limit, owed, released, lease, epoch,
  fresh, chosen = unpack('<c8c8dddddddddddd', ARGV[2])

local live = call('HGET', KEYS[1], 'live')
local org = call('HMGET', KEYS[2], 'live', ARGV[1])
if not live or not org[1] then return pack('<ddddd', UNKNOWN, 0, 0, 0, 0) end

local version, level, at, was, uses, used = unpack('<c8ddddd', live)
local its_version, taken, ends = unpack('<c8dd', org[1])
if version ~= key_version or its_version ~= org_version then
  return { call('HGETALL', KEYS[1]), call('HGETALL', KEYS[2]) }
end

local now = time(chosen)
local held, heard, its_lease, its_epoch = 0, 0, 0, epoch
if org[2] then
  held, heard, its_lease, its_epoch = unpack('<dddd', org[2])
elseif fresh == 0 then
  its_epoch = -1
end
if verdict == ADMITTED and its_epoch ~= epoch then return pack('<ddddd', UNREGISTERED, 0, 0, 0, 0) end

if now >= valid_until and verdict ~= REVOKED then verdict = EXPIRED end
if was ~= per then level = converted(level, was, per, capacity) end
local before = at
level, at = refilled(level, at, requests, capacity, now)
local set_back = at < before and verdict ~= REVOKED and verdict ~= EXPIRED and verdict ~= USER_REMOVED
if owed > 0 then
  local told = owed
  owed = math.max(0, told - (call('HGET', KEYS[3], ARGV[3]) or 0))
  if owed > 0 then
    call('HSET', KEYS[3], ARGV[3], string.format('%.0f', told))
    call('EXPIRE', KEYS[3], 86400)
  end
  level, uses, used = math.max(0, level - owed * per), uses + owed, math.max(used, now)
end
local counted = released > 0
if counted then
  released = math.min(released, held)
  taken, held = taken - released, held - released
end

if verdict == ADMITTED then
  if level < per then
    verdict = RATE_LIMITED
  elseif taken >= limit then
    if now >= ends or (ends > now + lease and ends < NEVER) then
      local held_by_others
      held_by_others, ends = others(KEYS[2], ARGV[1], now)
      taken, counted = held_by_others + held, true
      if org[2] then ends = math.min(ends, heard + its_lease) end
    end
    if taken >= limit then verdict = TOO_MANY end
  end
end

if verdict == ADMITTED then
  level, uses, used = level - per, uses + 1, now
  taken, held = taken + 1, held + 1
  if not org[2] then ends = math.min(ends, now + lease) end
end
if verdict == ADMITTED or owed > 0 or set_back then
  call('HSET', KEYS[1], 'live', pack('<c8ddddd', version, level, at, per, uses, used))
end
if verdict == ADMITTED or released > 0 then
  call('HSET', KEYS[2], 'live', pack('<c8dd', its_version, taken, ends), ARGV[1], pack('<dddd', held, now, lease, epoch))
elseif counted then
  call('HSET', KEYS[2], 'live', pack('<c8dd', its_version, taken, ends))
end
return pack('<ddddd', verdict, level, taken, uses, held)
