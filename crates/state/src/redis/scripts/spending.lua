-- spending: corrects what the subject of a budget has spent, line by line as in crates/state/src/spending.rs.
--
-- KEYS[1]  the record of the subject, a hash; `spent` is (start of the period or of a stretch of it, units), and
--          `recounted` the start of the last stretch that units were added to
-- ARGV[1]  packed: the time if the caller chose one, start and end of the period, the kind of the correction (0 reset,
--          1 split, 2 add), the start of the stretch that begins or is added to, units to add and units to take away
--
-- Result: packed (start and units of before, start and units of after); nil when the correction does not apply, also
-- because the period is another one by the clock of the server.

assert(#KEYS == 1 and #ARGV == 1, 'spending takes 1 key and 1 argument')

local RESET, ADD = 0, 2
local chosen, begin, finish, kind, chosen_start, added, taken = struct.unpack('<ddddddd', ARGV[1])
local now = time(chosen)
if now < begin or now >= finish or redis.call('EXISTS', KEYS[1]) == 0 then return false end

local kept = redis.call('HGET', KEYS[1], 'spent')
local its_start, spent = 0, 0
if kept then its_start, spent = struct.unpack('<dd', kept) end
local start = its_start
if start < begin then start, spent = begin, 0 end
local before = struct.pack('<dd', start, spent)
if kind == ADD then
  local stretch = struct.pack('<d', start)
  if chosen_start ~= start or redis.call('HGET', KEYS[1], 'recounted') == stretch then return false end
  redis.call('HSET', KEYS[1], 'recounted', stretch)
  spent = math.max(0, spent + added - taken)
else
  if chosen_start <= start or chosen_start >= finish then return false end
  start = chosen_start
  if kind == RESET then spent = 0 end
end
local after = struct.pack('<dd', start, spent)
redis.call('HSET', KEYS[1], 'spent', after)
return before .. after
