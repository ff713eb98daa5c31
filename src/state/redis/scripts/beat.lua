-- beat: a gateway says that it lives, or that it leaves.
--
-- KEYS[1]  the gateways, a hash: name to (when it was last heard of, its lease), in microseconds
-- ARGV[1]  the gateway's name
-- ARGV[2]  its lease; 0 when it leaves
--
-- Result: how many gateways live.

assert(#KEYS == 1 and #ARGV == 2, 'beat takes 1 key and 2 arguments')

local now = time(0)
local lease = tonumber(ARGV[2])
if lease > 0 then
  redis.call('HSET', KEYS[1], ARGV[1], struct.pack('<dd', now, lease))
else
  redis.call('HDEL', KEYS[1], ARGV[1])
end
local alive = 0
local gateways = redis.call('HGETALL', KEYS[1])
for i = 1, #gateways, 2 do
  local heard, its_lease = struct.unpack('<dd', gateways[i + 1])
  if math.abs(now - heard) > its_lease then
    redis.call('HDEL', KEYS[1], gateways[i])
  else
    alive = alive + 1
  end
end
return alive
