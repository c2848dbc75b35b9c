-- retention: terminal jobs: their indexes, and the rules that prune them
--
-- A state's index is scored by finish time, and by arrival inside one millisecond, in 2,048ths. Five decimals of them
-- are enough for a double of that size, and 19 digits are the most that a server reads the fast way.
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local groups = require("lib.groups")
local removal = lazy("lib.removal")
local waiters = lazy("lib.waiters")

local M = {}

local PLACE = { completed = 1, dead = 2, cancelled = 3, quarantined = 4 }
local PER_MS = 2048
local FRACTION = 48.828125  -- 1 / 2,048 in units of 10^-5

local text, format = number.text, string.format
local rules = {}            -- rule text -> state's place -> { count, age }
local arrivals = {}         -- state -> at -> how many 2,048ths are taken
local ended, transitions = {}, 0    -- where jobs ended in this call, and how many did

function M.rule(keep, state)
  local parsed = rules[keep]
  if not parsed then
    parsed = {}
    for count, age in string.gmatch(keep, "(%d*):(%d*)") do
      parsed[#parsed + 1] = { count = tonumber(count), age = tonumber(age) }
    end
    rules[keep] = parsed
  end
  return parsed[PLACE[state]]
end

-- How many of the 2,048ths of `at` are taken in the index of `state`.
local function taken_of(state, at)
  local newest = redis.call("ZRANGE", queue.key[state], "(" .. text(at + 1), text(at), "BYSCORE", "REV",
    "LIMIT", 0, 1, "WITHSCORES")
  return newest[2] and math.floor((tonumber(newest[2]) - at) * PER_MS + 1.5) or 0
end

-- The score of the next job that ends in `state` at `at`.
local function arrival(state, at)
  local taken = arrivals[state]
  local place = taken[at] or taken_of(state, at)
  taken[at] = place + 1
  local whole = at == queue.ms and queue.now or text(at)
  if place == 0 then return whole end
  return whole .. format(".%05d", (place < PER_MS and place or PER_MS - 1) * FRACTION + 0.5)
end

-- A record that finished in the past may stand before what the sweep has passed.
local function turn_back(state, at)
  local passed = queue.root["aged:" .. state]
  if passed and at < tonumber(string.match(passed, "^[^|]+")) then
    queue.root["aged:" .. state] = nil
    plan.add("HDEL", KEYS[1], "aged:" .. state)
  end
end

-- Where the jobs of this kind end: found once per call, state and set of options.
local function end_of(fixed, letter)
  local known = fixed.ends and fixed.ends[letter]
  if known then return known end
  local state = groups.state[letter]
  local found = { state = state, rule = M.rule(fixed.keep or queue.root.keep, state),
    group = groups.of(state, fixed.name) }
  fixed.ends = fixed.ends or {}
  fixed.ends[letter] = found
  ended[#ended + 1] = found
  arrivals[state] = arrivals[state] or {}
  queue.filled(state)
  return found
end

-- Indexes a job that reached the terminal state of `letter` at `at`, with its result or failure as the `outcome` if it
-- has one; returns false when its rule keeps nothing of it.
function M.finish(id, fixed, letter, at, outcome)
  local place = end_of(fixed, letter)
  local state, rule = place.state, place.rule
  transitions = transitions + 1
  if queue.here.waiters then waiters.tell(id, letter, outcome or "") end
  if rule.count == 0 then
    removal.forget(id, nil, fixed, at, true)
    return false
  end
  local score = arrival(state, at)
  if at < queue.ms then turn_back(state, at) end
  plan.add("ZADD", queue.key[state], score, id)
  if place.group then groups.join(place.group, score, id) end
  if fixed.keep and rule.age then plan.add("ZADD", queue.filled("aging"), text(at + rule.age), id) end
  return true
end

-- Whether the rule of a job that ends in the state of `letter` keeps anything of it.
function M.keeps(fixed, letter)
  return end_of(fixed, letter).rule.count ~= 0
end

-- As `finish` for jobs that complete now; returns for each whether its record stays. Those of one kind are indexed
-- together.
function M.complete(ids, fixeds, results)
  local keeps, same, index, group, members = {}, nil, nil, nil, nil
  for i = 1, #ids do
    local id, fixed = ids[i], fixeds[i]
    if fixed ~= same or not index then
      local place = end_of(fixed, "c")
      same, group = fixed, place.group
      index = place.rule.count ~= 0 and group and not (fixed.keep or queue.here.waiters)
        and plan.of("ZADD", queue.key.completed)
      members = index and plan.of("ZADD", group.key)
    end
    if index then
      local score, n, m = arrival("completed", queue.ms), #index, #members
      index[n + 1], index[n + 2] = score, id
      members[m + 1], members[m + 2] = score, id
      groups.count(group)
      transitions, keeps[i] = transitions + 1, true
    else
      keeps[i] = M.finish(id, fixed, "c", queue.ms, results[i])
    end
  end
  return keeps
end

-- Whether a group holds more than a rule keeps.
local function exceeds(each, rule)
  if rule.count and each.size > rule.count then return true end
  return rule.age and redis.call("ZCOUNT", each.key, "-inf", "(" .. text(queue.ms - rule.age + 1)) > 0
end

-- Whether a group that a count rule was to prune still holds more than the queue's own, by which the sweep goes.
local function is_left_over(each)
  local count = M.rule(queue.root.keep, each.state).count
  return count and each.rule.count and each.group.size > math.max(count, each.rule.count)
end

-- After the transitions of a call are written: each finished job's rule prunes its group, 2n + 10 records at most. What
-- is left is noted for the sweep.
function M.prune()
  if transitions == 0 then return end
  local budget, left = 2 * transitions + 10, false
  for i = 1, #ended do
    local each = ended[i]
    if each.group and exceeds(each.group, each.rule) then
      budget = budget - removal.prune(each.group, each.rule, budget)
      left = left or budget == 0 and is_left_over(each)
    end
  end
  transitions = 0
  if left and queue.root.uncounted ~= "1" then
    queue.root.uncounted = "1"
    plan.add("HSET", KEYS[1], "uncounted", "1")
    plan.commit()
  end
end

return M
