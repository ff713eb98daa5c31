-- commit: an optimistic transaction. Checks that the records are as they were read, then writes everything, or nothing.
-- A script that withdraws something runs also when the server's memory is full (scripts.rs).
--
-- KEYS     the records that it checks and writes, all of one hash slot
-- ARGV[1]  JSON: {"checks": [[name, key, …], …], "writes": [[name, key, …], …], "now": chosen time or 0}; a key is an
--          index into KEYS
--
-- Checks: "present" key | "absent" key | "equal" key field value | "no_field" key field
--         "fewer" key count                  the set has fewer members
--         "fewer_scored" key count value     the sorted set has fewer members whose time is not over, or this one
--         "token" key quota                  the user's bucket of keys to create has a token; {requests, per, capacity}
--         "free" key field value             the field is absent, or has this value already
--         "version" key version              of its live part
--         "unused_since" key time            the last use of the key was before this time, or there was none
--         "near" key time tolerance          the time is that of the server, to so many microseconds
-- Writes: the commands of Redis of these names, with a time or score as an integer:
--         "hset" key field value … | "hdel" key field … | "rpush" key value | "sadd" key value | "srem" key value
--         "zadd" key score value | "zrem" key value | "del" key | "pexpireat" key time | "pexpire" key milliseconds
--         "take_token" key quota             takes a token from the user's bucket of keys to create
--         "set_tokens" key level at per      that bucket of a new user
--         "set_spent" key start units        what the subject of a budget has spent, unless that began later, or
--                                            as late and is as much
--         "sweep" key index count            removes at most so many values of a sorted set whose time is over, and the
--                                            fields of these names from a hash
--         "prune" key count                  removes at most so many values of a sorted set whose time is over
--         "append_to_log" key capacity entry a log is a hash: entries by number, and the last number as `last`; keeps
--                                            so many entries
--         "count_change" key                 counts a change by management, and notes its time
--         "init_key" key version level at uses used quota   the live part of a new key, measured in this quota
--         "init_org" key version             the live part of a new organization
--         "replace_version" key version      another version; the rest of the live part is kept
--         "convert_quota" key old new age    converts the bucket; {requests, per, capacity} of the old and the new
--                                            quota, and the time for which the old one was in force. The tokens of this
--                                            moment stay
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
  no_field = function(key, field) return call('HEXISTS', key, field) == 0 end,
  free = function(key, field, value) return (call('HGET', key, field) or value) == value end,
  fewer = function(key, count) return call('SCARD', key) < count end,
  fewer_scored = function(key, count, value)
    if call('ZSCORE', key, value) then return true end
    return call('ZCOUNT', key, string.format('(%.0f', time(change.now)), '+inf') < count
  end,
  token = function(key, quota) return creation(key, quota) >= quota.per end,
  unused_since = function(key, since)
    return select(6, struct.unpack('<c8ddddd', call('HGET', key, 'live'))) < since
  end,
  near = function(_, at, tolerance) return math.abs(time(change.now) - at) <= tolerance end,
  version = function(key, version) return (call('HGET', key, 'live') or ''):sub(1, 8) == version end,
}

local function packed(quota)
  return struct.pack('<ddd', quota.requests, quota.per, quota.capacity)
end

local writes = {
  zadd = function(key, score, value) call('ZADD', key, string.format('%.0f', score), value) end,
  pexpireat = function(key, at) call('PEXPIREAT', key, string.format('%.0f', at)) end,
  pexpire = function(key, milliseconds) call('PEXPIRE', key, string.format('%.0f', milliseconds)) end,
  take_token = function(key, quota)
    local level, at = creation(key, quota)
    call('HSET', key, 'creation', struct.pack('<ddd', level - quota.per, at, quota.per))
  end,
  set_tokens = function(key, level, at, per) call('HSET', key, 'creation', struct.pack('<ddd', level, at, per)) end,
  set_spent = function(key, start, units)
    local kept = call('HGET', key, 'spent')
    if kept then
      local its_start, its_units = struct.unpack('<dd', kept)
      if its_start > start or its_start == start and its_units >= units then return end
    end
    call('HSET', key, 'spent', struct.pack('<dd', start, units))
  end,
  sweep = function(key, index, count)
    local now = string.format('%.0f', time(change.now))
    local over = call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, count)
    if #over == 0 then return end
    call('HDEL', KEYS[index], unpack(over))
    call('ZREM', key, unpack(over))
  end,
  append_to_log = function(key, capacity, entry)
    local number = (call('HGET', key, 'last') or 0) + 1
    local name = string.format('%.0f', number)
    call('HSET', key, 'last', name, name, entry)
    call('HDEL', key, string.format('%.0f', number - capacity))
  end,
  count_change = function(key)
    local changes = (call('HGET', key, 'changes') or 0) + 1
    call('HSET', key, 'changes', string.format('%.0f', changes), 'changed', string.format('%.0f', time(change.now)))
  end,
  prune = function(key, count)
    local over = call('ZRANGEBYSCORE', key, '-inf', string.format('%.0f', time(change.now)), 'LIMIT', 0, count)
    if #over > 0 then call('ZREM', key, unpack(over)) end
  end,
  init_key = function(key, version, level, at, uses, used, quota)
    local live = struct.pack('<c8ddddd', version, level, at, quota.per, uses, used)
    call('HSET', key, 'live', live, 'metered', packed(quota))
  end,
  init_org = function(key, version) call('HSET', key, 'live', struct.pack('<c8ddd', version, 0, 0,
      time(change.now))) end,
  replace_version = function(key, version) call('HSET', key, 'live', version .. call('HGET', key, 'live'):sub(9)) end,
  convert_quota = function(key, old, new, age)
    local record = call('HMGET', key, 'live', 'metered')
    local version, level, at, _, uses, used = struct.unpack('<c8ddddd', record[1])
    level, at = settled(level, at, record[2], old.requests, old.per, old.capacity, age, time(change.now))
    level = converted(level, old.per, new.per, new.capacity)
    local live = struct.pack('<c8ddddd', version, level, at, new.per, uses, used)
    call('HSET', key, 'live', live, 'metered', packed(new))
  end,
}

for _, command in ipairs({ 'hset', 'hdel', 'rpush', 'sadd', 'srem', 'zrem', 'del' }) do
  writes[command] = function(...) call(command, ...) end
end

for number, check in ipairs(change.checks) do
  if not checks[check[1]](KEYS[check[2]], check[3], check[4]) then return number end
end
for _, write in ipairs(change.writes) do
  writes[write[1]](KEYS[write[2]], select(3, unpack(write)))
end
return 0
