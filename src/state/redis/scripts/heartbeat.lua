-- heartbeat: the heartbeat of a gateway, or its deregistration.
--
-- KEYS[1]  the gateways, a hash: name to (time of the last heartbeat, lease time), in microseconds
-- ARGV[1]  the gateway's name
-- ARGV[2]  its lease time; 0 deregisters it
--
-- Result: the number of live gateways.

assert(#KEYS == 1 and #ARGV == 2, 'heartbeat takes 1 key and 2 arguments')

local now = time(0)
local lease = tonumber(ARGV[2])
if lease > 0 then
  redis.call('HSET', KEYS[1], ARGV[1], struct.pack('<dd', now, lease))
else
  redis.call('HDEL', KEYS[1], ARGV[1])
end
local live = 0
local gateways = redis.call('HGETALL', KEYS[1])
for i = 1, #gateways, 2 do
  local last_beat, its_lease = struct.unpack('<dd', gateways[i + 1])
  -- The distance in both directions: a heartbeat far in the future is from before the clock was set back.
  if math.abs(now - last_beat) > its_lease then
    redis.call('HDEL', KEYS[1], gateways[i])
  else
    live = live + 1
  end
end
return live
