-- key_page: some keys of an organization or of a user, in the order of lists. Reads only.
--
-- KEYS[1]  the keys by creation time, and keys of one time by id: a sorted set; those at 0 are not listed
-- ARGV[1]  "oldest" or "newest": the end to begin with
-- ARGV[2], ARGV[3]  creation time and id of the key to continue behind; two empty texts for none
-- ARGV[4]  number of keys to return at most
--
-- Result: the ids and their times alternating, in the order of ARGV[1].

assert(#KEYS == 1 and #ARGV == 4, 'key_page takes 1 key and 4 arguments')

local call = redis.call
local index, count = KEYS[1], tonumber(ARGV[4])

-- By bytes, as Redis orders members. Lua's `<` follows the locale of the server.
local function is_before(one, other)
  for at = 1, math.min(#one, #other) do
    local a, b = one:byte(at), other:byte(at)
    if a ~= b then return a < b end
  end
  return #one < #other
end

-- The number of members before the key, or before and including it. The key itself may be gone.
local function rank(created, id, including)
  local low, high = call('ZCOUNT', index, '-inf', '(' .. created), call('ZCOUNT', index, '-inf', created)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local member = call('ZRANGE', index, middle, middle)[1]
    if is_before(member, id) or (including and member == id) then low = middle + 1 else high = middle end
  end
  return low
end

local first = call('ZCOUNT', index, '-inf', 0)
if ARGV[1] == 'oldest' then
  local from = first
  if ARGV[3] ~= '' then from = math.max(first, rank(ARGV[2], ARGV[3], true)) end
  return call('ZRANGE', index, from, from + count - 1, 'WITHSCORES')
end
local to = call('ZCARD', index)
if ARGV[3] ~= '' then to = rank(ARGV[2], ARGV[3], false) end
local from = math.max(first, to - count)
if from >= to then return {} end
local found, reversed = call('ZRANGE', index, from, to - 1, 'WITHSCORES'), {}
for at = #found - 1, 1, -2 do
  reversed[#reversed + 1], reversed[#reversed + 2] = found[at], found[at + 1]
end
return reversed
