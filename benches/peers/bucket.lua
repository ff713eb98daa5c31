-- Token bucket of the peers on Redis. KEYS: the bucket. ARGV: tokens an hour, capacity. Returns whether there was a
-- token, and how many are left.
local rate = tonumber(ARGV[1])
local cap = tonumber(ARGV[2])
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local b = redis.call('HMGET', KEYS[1], 't', 'n')
local tok = tonumber(b[2])
if tok == nil then
  tok = cap
else
  tok = math.min(cap, tok + (now - tonumber(b[1])) * rate / 3600000000)
end
local ok = 0
if tok >= 1 then
  tok = tok - 1
  ok = 1
end
redis.call('HSET', KEYS[1], 't', string.format('%.0f', now), 'n', tostring(tok))
redis.call('PEXPIRE', KEYS[1], 3600000)
return {ok, math.floor(tok)}
