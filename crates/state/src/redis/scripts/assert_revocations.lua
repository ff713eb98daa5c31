-- assert_revocations: writes withdrawals again, which a failover may have undone; also when the server's memory is
-- full.
--
-- KEYS       records, all of one hash slot on a Cluster
-- ARGV[1]    the version that changed records get: that of a user is in a field of its own, others in the live part
-- ARGV[1+i]  the write to KEYS[i]:
--            "delete"             delete the record
--            "set FIELD VALUE"    set the field of a record that exists and lacks it
--            "free VALUE FIELD"   remove the field, if it has this value
--            "claim KEY TIME"     make this the record of the digest of a key, where there is none
--            "token ID TIME"      mark the management token as revoked, if it is live
--            "rule NAME TIME"     remove the federation rule that was created at this time
--            of a record whose counter is below NUMBER, which it gets:
--            "suspend NUMBER VALUE"  suspend the user or the organization
--            "disable NUMBER MARK"   disable the key
--            "rotate NUMBER DIGEST PREVIOUS TIME UNTIL"  rotate the key
--
-- Result: the number of records that were changed. Repeating it changes nothing.

assert(#KEYS >= 1 and #ARGV == #KEYS + 1, 'assert_revocations takes a version, and a write for each key')

local call = redis.call
local changed = 0

-- Sets fields of a record, and its version.
local function set(key, live, ...)
  local field, version = 'version', ARGV[1]
  if live then field, version = 'live', version .. live:sub(9) end
  call('HSET', key, field, version, ...)
  changed = changed + 1
end

-- Sets fields of a record that exists, and its counter, unless it has counted as far.
local function set_numbered(key, counter, number, ...)
  local record = call('HMGET', key, 'id', 'live', counter)
  if record[1] and tonumber(record[3] or 0) < tonumber(number) then set(key, record[2], counter, number, ...) end
end

-- The policy of a disabled key.
local function disabled(policy, mark)
  local field = '"disabled":' .. mark
  local replaced, count = policy:gsub('"disabled":%b{}', field)
  if count > 0 then return replaced end
  return '{' .. field .. (policy == '{}' and '' or ',') .. policy:sub(2)
end

local writes = {
  delete = function(key) changed = changed + call('DEL', key) end,
  set = function(key, field, value)
    local record = call('HMGET', key, 'id', field, 'live')
    if record[1] and not record[2] then set(key, record[3], field, value) end
  end,
  free = function(key, value, field)
    if call('HGET', key, field) == value then changed = changed + call('HDEL', key, field) end
  end,
  claim = function(key, id, time)
    if call('HSETNX', key, 'key', id) == 1 then
      call('HSET', key, 'at', time)
      changed = changed + 1
    end
  end,
  token = function(key, id, time)
    local token = call('HGET', key, id)
    if token and not token:find('"revoked":"', 1, true) then
      call('HSET', key, id, '{"revoked":"' .. time .. '",' .. token:sub(2))
      changed = changed + 1
    end
  end,
  rule = function(key, name, time)
    local rule = call('HGET', key, name)
    if rule and rule:find('"created":"' .. time .. '"', 1, true) then changed = changed + call('HDEL', key, name) end
  end,
  suspend = function(key, number, value) set_numbered(key, 'suspensions', number, 'suspended', value) end,
  disable = function(key, number, mark)
    local policy = call('HGET', key, 'policy') or '{}'
    set_numbered(key, 'disablings', number, 'policy', disabled(policy, mark))
  end,
  rotate = function(key, number, rest)
    local digest, previous, time, til = rest:match('^(%S+) (%S+) (%S+) (%S+)$')
    set_numbered(key, 'rotations', number, 'digest', digest, 'previous', previous, 'rotated', time,
      'previous_until', til)
  end,
}

for number, key in ipairs(KEYS) do
  local write, first, second = ARGV[number + 1]:match('^(%l+) ?(%S*) ?(.*)$')
  writes[write](key, first, second)
end
return changed
