-- sign_of_life: a heartbeat of the fleet to this server.
--
-- KEYS[1]  the signs of life of the server, a hash: `live` is (since when there was no gap of half a lease between
--          them, the last one), in microseconds. It expires a day after the last one
-- ARGV[1]  packed: (lease time, chosen time)
--
-- A sign that follows another one closely is not written, so that a thousand gateways write as often as a dozen.
--
-- Result: packed: since when the server is there without a gap, and this moment.

assert(#KEYS == 1 and #ARGV == 1, 'sign_of_life takes 1 key and 1 argument')

local lease, chosen = struct.unpack('<dd', ARGV[1])
local now = time(chosen)
local live = redis.call('HGET', KEYS[1], 'live')
local since, last = now, 0
if live then since, last = struct.unpack('<dd', live) end
if now < last or now - last > lease / 2 then since = now end
if now < last or now - last > lease / 12 then
  redis.call('HSET', KEYS[1], 'live', struct.pack('<dd', since, now))
  redis.call('EXPIRE', KEYS[1], 86400)
end
return struct.pack('<dd', since, now)
