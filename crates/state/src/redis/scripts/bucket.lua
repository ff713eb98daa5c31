-- The token bucket, line by line as in crates/state/src/bucket.rs. All numbers are integers below 2^53, exact in a
-- double. A level is below zero while uses are repaid that were admitted without Redis.

-- A time at most this much before the bucket's own is a late reading; an earlier one means that the clock was set back.
local REORDERED = 1000000

-- The level below which no bucket falls: from there to a full one, every distance is exact.
local function lowest(capacity)
  return math.min(0, capacity - 9007199254740991)
end

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
  return math.max(lowest(capacity), math.min(whole * per + quotient, capacity))
end

-- The bucket at `now` under the quota in force for `age` microseconds (requests, per, capacity), of one that was
-- measured with the quota `metered`, packed. The time before the quota came into force counts by the one before it.
local function settled(level, at, metered, requests, per, capacity, age, now)
  local its_requests, its_per, its_capacity = struct.unpack('<ddd', metered)
  local begin = now - age
  if begin > at then
    level, at = refilled(level, at, its_requests, its_capacity, begin)
  end
  return refilled(converted(level, its_per, per, capacity), at, requests, capacity, now)
end

-- The time in microseconds: the server's, unless the caller chose one.
local function time(chosen)
  if chosen ~= 0 then return chosen end
  local parts = redis.call('TIME')
  return parts[1] * 1000000 + parts[2]
end
