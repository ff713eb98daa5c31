-- The token bucket, line by line as in src/state/bucket.rs. All numbers are integers below 2^53, exact in a double.

-- A time at most this much before the bucket's own is a late reading; an earlier one means that the clock was set back.
local REORDERED = 1000000

-- The level at `now`, and the bucket's new time.
local function refilled(level, at, requests, capacity, now)
  if now < at then
    if at - now > REORDERED then at = now end
    return level, at
  end
  local inflow = (now - at) * requests
  if inflow >= capacity - level then return capacity, now end
  return level + inflow, now
end

-- The level converted from one `per` to another, rounded down. The product of the remainder (below `was`) and `per` can
-- exceed 2^53, so it is divided while it is built up bit by bit.
local function converted(level, was, per, capacity)
  local whole = math.floor(level / was)
  local part = level - whole * was
  local quotient, rest, bit = 0, 0, 2 ^ 46
  while bit >= 1 do
    quotient, rest = quotient * 2, rest * 2
    if per % (bit * 2) >= bit then rest = rest + part end
    if rest >= was then
      local fits = math.floor(rest / was)
      quotient, rest = quotient + fits, rest - fits * was
    end
    bit = bit / 2
  end
  return math.min(whole * per + quotient, capacity)
end

-- The time in microseconds: the server's, unless the caller chose one.
local function time(chosen)
  if chosen ~= 0 then return chosen end
  local parts = redis.call('TIME')
  return parts[1] * 1000000 + parts[2]
end
