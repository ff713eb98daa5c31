-- heartbeat: the heartbeat of a gateway, or its deregistration.
--
-- KEYS[1]  the gateways, a hash: name to (time of the last heartbeat, lifetime, time at which it joined, the latest join
--          that it has seen), in microseconds
-- ARGV[1]  the gateway's name
-- ARGV[2]  the lifetime of its entry; 0 deregisters it
-- ARGV[3]  the latest join that it has seen
--
-- A gateway joins when it has no live entry. No two join at the same time, and each later than those before.
--
-- Result: packed: the time at which it joined; and of each other live gateway the time at which it joined and the latest
-- join that it has seen.

assert(#KEYS == 1 and #ARGV == 3, 'heartbeat takes 1 key and 3 arguments')

local now = time(0)
local lifetime, seen = tonumber(ARGV[2]), tonumber(ARGV[3])
local joined, latest = nil, 0
local others = {}
local gateways = redis.call('HGETALL', KEYS[1])
for i = 1, #gateways, 2 do
  local name, entry = gateways[i], gateways[i + 1]
  local last_beat, its_lifetime = struct.unpack('<dd', entry)
  -- An entry of an earlier version has no join: it joined before all others, and saw all until its last heartbeat.
  local its_join, its_seen = 0, last_beat
  if #entry >= 32 then its_join, its_seen = struct.unpack('<dd', entry, 17) end
  -- The distance in both directions: a heartbeat far in the future is from before the clock was set back.
  if math.abs(now - last_beat) > its_lifetime then
    redis.call('HDEL', KEYS[1], name)
  else
    latest = math.max(latest, its_join)
    if name == ARGV[1] then
      joined = its_join
    else
      others[#others + 1] = struct.pack('<dd', its_join, its_seen)
    end
  end
end
if lifetime > 0 then
  joined = joined or math.max(now, latest + 1)
  redis.call('HSET', KEYS[1], ARGV[1], struct.pack('<dddd', now, lifetime, joined, seen))
else
  redis.call('HDEL', KEYS[1], ARGV[1])
end
return struct.pack('<d', joined or 0) .. table.concat(others)
