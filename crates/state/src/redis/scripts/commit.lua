-- commit: an optimistic transaction. Checks that the records are as they were read, then writes everything, or nothing.
-- Where it withdraws something, it runs also when the server's memory is full (scripts.rs).
--
-- KEYS     the records that it checks and writes, all of one hash slot
-- ARGV[1]  JSON: {"checks": [[name, key, …], …], "writes": [[name, key, …], …], "now": chosen time or 0}, where a key is
--          an index into KEYS
--
-- Checks: "present" key | "absent" key | "equal" key field value | "none" key field | "first" key value (of a list)
--         "fewer" key count          the set has fewer members
--         "room" key count value     the sorted set has fewer members whose time is not over, or this one
--         "token" key quota          the user's bucket of keys to create has a token; {requests, per, capacity}
--         "free" key field value     the field is absent, or has this value already
--         "version" key version      of its live part
--         "behind" key uses          the key has fewer uses
-- Writes: "set" key field value … | "unset" key field … | "append" key value | "add" key value | "drop" key
--         "remove" key value         of a set
--         "trim" key count           removes so many values from the beginning of a list
--         "take" key quota           takes a token from the user's bucket of keys to create
--         "limit" key level at per quota   makes the user's bucket of keys to create as empty as this one, if it is fuller
--         "tokens" key level at per   the bucket of the keys that a new user creates
--         "merge" key level at uses used of quota age   takes over more uses, a later last use and an emptier bucket, each
--                                    by itself; `of` is the quota that the bucket is measured in, `quota` the one in
--                                    force for `age` microseconds
--         "expire" key time          expiry, in milliseconds since the Unix epoch
--         "rank" key score value | "unrank" key value     of a sorted set
--         "sweep" key index count    removes at most so many values of a sorted set whose time is over, and the fields
--                                    of these names from a hash
--         "log" key capacity entry   appends to a log, a hash: entries by number, and the last number as `last`; keeps so
--                                    many entries
--         "prune" key count          removes at most so many values of a sorted set whose time is over
--         "bucket" key version level at uses used quota   the live part of a new key, measured in this quota
--         "slots" key version        the live part of a new organization
--         "stamp" key version        another version; the rest of the live part is kept
--         "quota" key old new age    converts the bucket; {requests, per, capacity} of the old and the new quota, and
--                                    the time for which the old one was in force. The tokens of this moment stay
--
-- Result: 0 when everything is written, else the number of the first check that failed, from 1; nothing was written.

assert(#KEYS >= 1 and #ARGV == 1, 'commit takes its keys and 1 argument')

local call = redis.call
local change = cjson.decode(ARGV[1])

-- A user's bucket of keys to create, as of now: level and time.
local function creation(key, quota)
  local packed, now = call('HGET', key, 'creation'), time(change.now)
  if not packed then return quota.capacity, now end
  local level, at, was = struct.unpack('<ddd', packed)
  if was ~= quota.per then level = converted(level, was, quota.per, quota.capacity) end
  return refilled(level, at, quota.requests, quota.capacity, now)
end

local checks = {
  present = function(key) return call('EXISTS', key) == 1 end,
  absent = function(key) return call('EXISTS', key) == 0 end,
  equal = function(key, field, value) return call('HGET', key, field) == value end,
  none = function(key, field) return call('HEXISTS', key, field) == 0 end,
  free = function(key, field, value) return (call('HGET', key, field) or value) == value end,
  fewer = function(key, count) return call('SCARD', key) < count end,
  room = function(key, count, value)
    if call('ZSCORE', key, value) then return true end
    return call('ZCOUNT', key, string.format('(%.0f', time(change.now)), '+inf') < count
  end,
  first = function(key, value) return call('LINDEX', key, 0) == value end,
  token = function(key, quota) return creation(key, quota) >= quota.per end,
  version = function(key, version) return (call('HGET', key, 'live') or ''):sub(1, 8) == version end,
  behind = function(key, uses) return select(5, struct.unpack('<c8ddddd', call('HGET', key, 'live'))) < uses end,
}

local function packed(quota)
  return struct.pack('<ddd', quota.requests, quota.per, quota.capacity)
end

local writes = {
  set = function(key, ...) call('HSET', key, ...) end,
  unset = function(key, ...) call('HDEL', key, ...) end,
  append = function(key, value) call('RPUSH', key, value) end,
  add = function(key, value) call('SADD', key, value) end,
  remove = function(key, value) call('SREM', key, value) end,
  trim = function(key, count) call('LTRIM', key, count, -1) end,
  take = function(key, quota)
    local level, at = creation(key, quota)
    call('HSET', key, 'creation', struct.pack('<ddd', level - quota.per, at, quota.per))
  end,
  limit = function(key, level, at, was, quota)
    local now_level = level
    if was ~= quota.per then now_level = converted(level, was, quota.per, quota.capacity) end
    now_level = refilled(now_level, at, quota.requests, quota.capacity, time(change.now))
    if now_level < creation(key, quota) then call('HSET', key, 'creation', struct.pack('<ddd', level, at, was)) end
  end,
  tokens = function(key, level, at, per) call('HSET', key, 'creation', struct.pack('<ddd', level, at, per)) end,
  merge = function(key, level, at, uses, used, of, quota, age)
    local record, now = call('HMGET', key, 'live', 'metered'), time(change.now)
    local version, its_level, its_at, its_per, its_uses, its_used = struct.unpack('<c8ddddd', record[1])
    local per, metered = its_per, record[2]
    local theirs = settled(level, at, of.per, packed(of), quota.requests, quota.per, quota.capacity, age, now)
    local ours = settled(its_level, its_at, its_per, record[2], quota.requests, quota.per, quota.capacity, age, now)
    if theirs < ours then its_level, its_at, per, metered = level, at, of.per, packed(of) end
    local live = struct.pack('<c8ddddd', version, its_level, its_at, per, math.max(uses, its_uses), math.max(used, its_used))
    call('HSET', key, 'live', live)
    if metered then call('HSET', key, 'metered', metered) end
  end,
  drop = function(key) call('DEL', key) end,
  expire = function(key, at) call('PEXPIREAT', key, string.format('%.0f', at)) end,
  rank = function(key, score, value) call('ZADD', key, string.format('%.0f', score), value) end,
  unrank = function(key, value) call('ZREM', key, value) end,
  sweep = function(key, index, count)
    local now = string.format('%.0f', time(change.now))
    local over = call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, count)
    if #over == 0 then return end
    call('HDEL', KEYS[index], unpack(over))
    call('ZREM', key, unpack(over))
  end,
  log = function(key, capacity, entry)
    local number = (call('HGET', key, 'last') or 0) + 1
    local name = string.format('%.0f', number)
    call('HSET', key, 'last', name, name, entry)
    call('HDEL', key, string.format('%.0f', number - capacity))
  end,
  prune = function(key, count)
    local over = call('ZRANGEBYSCORE', key, '-inf', string.format('%.0f', time(change.now)), 'LIMIT', 0, count)
    if #over > 0 then call('ZREM', key, unpack(over)) end
  end,
  bucket = function(key, version, level, at, uses, used, quota)
    local live = struct.pack('<c8ddddd', version, level, at, quota.per, uses, used)
    call('HSET', key, 'live', live, 'metered', packed(quota))
  end,
  slots = function(key, version) call('HSET', key, 'live', struct.pack('<c8dd', version, 0, 0)) end,
  stamp = function(key, version) call('HSET', key, 'live', version .. call('HGET', key, 'live'):sub(9)) end,
  quota = function(key, old, new, age)
    local record = call('HMGET', key, 'live', 'metered')
    local version, level, at, was, uses, used = struct.unpack('<c8ddddd', record[1])
    level, at = settled(level, at, was, record[2], old.requests, old.per, old.capacity, age, time(change.now))
    level = converted(level, old.per, new.per, new.capacity)
    local live = struct.pack('<c8ddddd', version, level, at, new.per, uses, used)
    call('HSET', key, 'live', live, 'metered', packed(new))
  end,
}

for number, check in ipairs(change.checks) do
  if not checks[check[1]](KEYS[check[2]], check[3], check[4]) then return number end
end
for _, write in ipairs(change.writes) do
  writes[write[1]](KEYS[write[2]], select(3, unpack(write)))
end
return 0
