-- heartbeat: the heartbeat of a gateway, or its deregistration.
--
-- KEYS[1]  the gateways, a hash: name to (time of the last heartbeat, lifetime, time at which it joined, the latest
--          join that it has seen), in microseconds
-- KEYS[2]  facts about that hash, a hash: `begun`, the time at which it began; `latest_join`, of all gateways ever;
--          `whole_from`, the time from which it has every gateway that may admit requests
-- ARGV[1]  the gateway's name
-- ARGV[2]  the lifetime of its entry; 0 deregisters it
-- ARGV[3]  the latest join that it has seen
-- ARGV[4]  the time at which it joined, if an entry of it should be live; otherwise 0
--
-- A gateway joins when it has no live entry. No two join at the same time, and each later than those before.
--
-- Entries can be lost: with all data, or by a failover. A gateway notices it by a join that it has seen and that the
-- hash never had, or by its own, which is older than the hash. It takes back its place then. Until the lifetime of
-- those that do not reach the server has passed, the hash is not whole, and no limit is divided by it.
--
-- Result: packed: the time at which it joined; the number of the other live gateways; the number of those that joined
-- earlier; the oldest of the latest joins that they have seen; the latest of their joins; 1 when the hash is whole. Not
-- a list of them, which took two fifths of the script's time with a thousand gateways.

assert(#KEYS == 2 and #ARGV == 4, 'heartbeat takes 2 keys and 4 arguments')

-- The oldest of the joins seen when there are no others.
local NEVER = 9007199254740991
-- Locals are found faster than globals, which counts in a loop over all gateways.
local unpack, abs = struct.unpack, math.abs

-- The distance in both directions: a heartbeat far in the future is from before the clock was set back.
local function is_live(now, last_beat, lifetime)
  return abs(now - last_beat) <= lifetime
end

local now = time(0)
local lifetime, seen, claimed = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local gateways = redis.call('HGETALL', KEYS[1])
local own = redis.call('HGET', KEYS[1], ARGV[1])
local known = redis.call('HMGET', KEYS[2], 'begun', 'latest_join', 'whole_from')

local begun, latest_of_all = tonumber(known[1] or now), tonumber(known[2] or 0)
-- Without a record of it, it is whole only if an earlier version wrote it.
local whole_from = tonumber(known[3] or (#gateways == 0 and now + lifetime or 0))
if lifetime > 0 then
  -- The clock may have been set back.
  whole_from = math.min(whole_from, now + lifetime)
end

local joined = nil
if own then
  local last_beat, its_lifetime, its_join = unpack('<dddd', own)
  if is_live(now, last_beat, its_lifetime) then
    joined = its_join
  elseif claimed > 0 then
    -- By the gateway's clock it is live: one of the two clocks has jumped, and perhaps for all gateways.
    whole_from = now + lifetime
  end
end
local was_lost = seen > latest_of_all or (not own and claimed > 0 and claimed < begun)
if was_lost and now >= whole_from then
  whole_from = now + lifetime
end
local is_whole = now >= whole_from
if not joined and not own and claimed > 0 and not is_whole then
  joined = claimed
end

local count, earlier, least_seen, latest = 0, 0, NEVER, 0
for i = 1, #gateways, 2 do
  local name = gateways[i]
  if name ~= ARGV[1] then
    local last_beat, its_lifetime, its_join, its_seen = unpack('<dddd', gateways[i + 1])
    if is_live(now, last_beat, its_lifetime) then
      count = count + 1
      if joined and its_join < joined then earlier = earlier + 1 end
      if its_seen < least_seen then least_seen = its_seen end
      if its_join > latest then latest = its_join end
    else
      redis.call('HDEL', KEYS[1], name)
    end
  end
end
latest_of_all = math.max(latest_of_all, latest, seen)
if not joined then
  joined, earlier = math.max(now, latest_of_all + 1), count
end

if lifetime > 0 then
  redis.call('HSET', KEYS[1], ARGV[1], struct.pack('<dddd', now, lifetime, joined, seen))
  local facts = {begun, math.max(latest_of_all, joined), whole_from}
  for i, field in ipairs({'begun', 'latest_join', 'whole_from'}) do
    local fact = string.format('%.0f', facts[i])
    if fact ~= known[i] then redis.call('HSET', KEYS[2], field, fact) end
  end
else
  redis.call('HDEL', KEYS[1], ARGV[1])
end
return struct.pack('<dddddd', joined, count, earlier, least_seen, latest, is_whole and 1 or 0)
