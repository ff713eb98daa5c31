-- spending: corrects what the subject of a budget has spent, line by line as in crates/state/src/spending.rs.
--
-- KEYS[1]  the record of the subject, a hash; `spent` is (start of the period or of a stretch of it, units)
-- ARGV[1]  packed: the time if the caller chose one, start and end of the period, the kind of the correction (0 reset,
--          1 split, 2 add), and of the last kind the start of the stretch, units to add and units to take away
--
-- Result: packed (start and units of before, start and units of after); nil when the correction does not apply, also
-- because the period is another one by the clock of the server.

assert(#KEYS == 1 and #ARGV == 1, 'spending takes 1 key and 1 argument')

local SECOND, RESET, ADD = 1000000, 0, 2
local chosen, begin, finish, kind, since, added, taken = struct.unpack('<ddddddd', ARGV[1])
local now = time(chosen)
if now < begin or now >= finish or redis.call('EXISTS', KEYS[1]) == 0 then return false end

local kept = redis.call('HGET', KEYS[1], 'spent')
local its_start, spent = 0, 0
if kept then its_start, spent = struct.unpack('<dd', kept) end
local start = its_start
if start < begin then start, spent = begin, 0 end
local before = struct.pack('<dd', start, spent)
if kind == ADD then
  if since ~= start then return false end
  spent = math.max(0, spent + added - taken)
else
  start = math.max(now - now % SECOND, its_start + SECOND)
  if start >= finish then return false end
  if kind == RESET then spent = 0 end
end
local after = struct.pack('<dd', start, spent)
redis.call('HSET', KEYS[1], 'spent', after)
return before .. after
