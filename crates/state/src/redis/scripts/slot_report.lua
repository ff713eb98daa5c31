-- slot_report: a report about a gateway's slot lease outside of decisions. It renews the lease, reports releases, or
-- sets the absolute number of slots held.
--
-- KEYS[1]  the organization's record, or that of the slots of a key
-- KEYS[2]  only for the slots of a key: the key's record
-- ARGV[1]  the gateway's field
-- ARGV[2]  packed: (slots held, or -1 to keep the number, slots released, lease time, generation, 1 to deregister,
--          chosen time, and the server's signs of life: since when, and the last)
--
-- An absolute number begins a new generation: commands of earlier generations that are still in flight have no effect
-- from then on. Without an absolute number, the lease must exist in this generation.
--
-- Result: packed (code, slots taken). Codes: 0 done, 2 deregistered, 1 no such organization or key, 9 no lease in this
-- generation. With 1 and 9 nothing was changed.

assert((#KEYS == 1 or #KEYS == 2) and #ARGV == 2, 'slot_report takes 1 or 2 keys and 2 arguments')

local DONE, UNKNOWN, DEREGISTERED, UNREGISTERED = 0, 1, 2, 9
local absolute, released, lease, generation, deregister, chosen, since, last = struct.unpack('<dddddddd', ARGV[2])

local now = time(chosen)
local there = there_since(since, last, now, lease)
local fields = redis.call('HMGET', KEYS[1], 'live', ARGV[1])
local live = fields[1]
-- No gateway holds slots of the key.
if not live and KEYS[2] and redis.call('EXISTS', KEYS[2]) == 1 then
  live = struct.pack('<c8ddd', NO_VERSION, 0, NEVER, now)
end
if not live then return struct.pack('<dd', UNKNOWN, 0) end
local version, taken, first_end, alive = struct.unpack('<c8ddd', live)
local held, its_generation = 0, -1
if fields[2] then
  local reported, its_lease
  held, reported, its_lease, its_generation = struct.unpack('<dddd', fields[2])
end

local before = held
if absolute >= 0 then
  -- A repeated or overtaken resync must not undo what came after it.
  if its_generation >= generation then return struct.pack('<dd', UNREGISTERED, 0) end
  held = absolute
else
  if its_generation ~= generation then return struct.pack('<dd', UNREGISTERED, 0) end
  held = math.max(0, held - released)
end

if must_recount(first_end, alive, there, now, lease) then
  taken, first_end = recount(KEYS[1], ARGV[1], now, lease, alive, there)
else
  taken = taken - before
end
taken = taken + held
local code = DONE
if deregister == 1 and held == 0 then
  redis.call('HDEL', KEYS[1], ARGV[1])
  code = DEREGISTERED
else
  redis.call('HSET', KEYS[1], ARGV[1], struct.pack('<dddd', held, now, lease, generation))
  first_end = math.min(first_end, now + lease)
end
if KEYS[2] and code == DEREGISTERED and redis.call('HLEN', KEYS[1]) <= 1 then
  redis.call('DEL', KEYS[1])
else
  redis.call('HSET', KEYS[1], 'live', struct.pack('<c8ddd', version, taken, first_end, now))
  if KEYS[2] then redis.call('EXPIRE', KEYS[1], LIFETIME) end
end
return struct.pack('<dd', code, taken)
