-- hold: what a holder says of its slots outside of decisions: that it lives, that it released some, how many it holds.
--
-- KEYS[1]  the organization's record
-- ARGV[1]  the holder's field
-- ARGV[2]  (slots held, or -1 for as many as are known; slots released; lease; epoch; whether it leaves; chosen time)
--
-- An absolute number begins a new epoch: commands of earlier ones that are still on their way have no effect then.
-- Without one, the holder must be known in this epoch.
--
-- Result: (code, slots taken): 0 done, 2 left, 1 no such organization, 9 not registered in this epoch; nothing was
-- changed by the last two.

assert(#KEYS == 1 and #ARGV == 2, 'hold takes 1 key and 2 arguments')

local DONE, UNKNOWN, LEFT, UNREGISTERED = 0, 1, 2, 9
local absolute, released, lease, epoch, leaves, chosen = struct.unpack('<dddddd', ARGV[2])

local fields = redis.call('HMGET', KEYS[1], 'live', ARGV[1])
if not fields[1] then return struct.pack('<dd', UNKNOWN, 0) end
local version = fields[1]:sub(1, 8)
local held, its_epoch = 0, -1
if fields[2] then
  local heard, its_lease
  held, heard, its_lease, its_epoch = struct.unpack('<dddd', fields[2])
end

if absolute >= 0 then
  if its_epoch >= epoch then return struct.pack('<dd', UNREGISTERED, 0) end
  held = absolute
else
  if its_epoch ~= epoch then return struct.pack('<dd', UNREGISTERED, 0) end
  held = math.max(0, held - released)
end

local now = time(chosen)
local taken, ends = others(KEYS[1], ARGV[1], now)
taken = taken + held
local code = DONE
if leaves == 1 and held == 0 then
  redis.call('HDEL', KEYS[1], ARGV[1])
  code = LEFT
else
  redis.call('HSET', KEYS[1], ARGV[1], struct.pack('<dddd', held, now, lease, epoch))
  ends = math.min(ends, now + lease)
end
redis.call('HSET', KEYS[1], 'live', struct.pack('<c8dd', version, taken, ends))
return struct.pack('<dd', code, taken)
