-- assert_revocations: writes final refusals again, which a failover may have undone; also when the
-- server's memory is full.
--
-- KEYS       records, all of one hash slot on a Cluster
-- ARGV[1]    the version that changed records get
-- ARGV[1+i]  the write to KEYS[i]:
--            "delete"             delete the record
--            "set FIELD VALUE"    set the field of a record that exists and lacks it, and its version: that of a key is
--                                 in its live part, that of a user in a field of its own
--            "free VALUE FIELD"   remove the field, if it has this value
--
-- Result: the number of records that were changed. Repeating it changes nothing.

assert(#KEYS >= 1 and #ARGV == #KEYS + 1, 'assert_revocations takes a version, and a write for each key')

local call = redis.call
local changed = 0
for number, key in ipairs(KEYS) do
  local write, first, second = ARGV[number + 1]:match('^(%l+) ?(%S*) ?(.*)$')
  if write == 'delete' then
    changed = changed + call('DEL', key)
  elseif write == 'set' then
    local record = call('HMGET', key, 'id', first, 'live')
    if record[1] and not record[2] then
      local field, version = 'version', ARGV[1]
      if record[3] then field, version = 'live', version .. record[3]:sub(9) end
      call('HSET', key, first, second, field, version)
      changed = changed + 1
    end
  elseif write == 'free' and call('HGET', key, second) == first then
    changed = changed + call('HDEL', key, second)
  end
end
return changed
