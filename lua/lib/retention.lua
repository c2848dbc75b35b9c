-- retention: terminal jobs: their indexes, and the rules that prune them
--
-- A state's index is scored by finish time, and by arrival inside one millisecond (in 2,048ths).
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local groups = require("lib.groups")
local removal = lazy("lib.removal")
local waiters = lazy("lib.waiters")

local M = {}

local PLACE = { completed = 1, dead = 2, cancelled = 3, quarantined = 4 }
local PER_MS = 2048
local FRACTION = 48828125   -- 1 / 2,048 in units of 10^-11

local text = number.text
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

-- The score of the next job that ends in `state` at `at`.
local function arrival(state, at)
  local taken = arrivals[state] or {}
  arrivals[state] = taken
  local place = taken[at]
  if not place then
    local newest = redis.call("ZRANGE", queue.key[state], "(" .. text(at + 1), text(at), "BYSCORE", "REV",
      "LIMIT", 0, 1, "WITHSCORES")
    place = newest[2] and (tonumber(newest[2]) - at) * PER_MS + 1 or 0
  end
  taken[at] = place + 1
  place = math.min(place, PER_MS - 1)
  return (at == queue.ms and queue.now or text(at)) .. string.format(".%011d", place * FRACTION)
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
  local ends = fixed.ends
  if not ends then
    ends = {}
    fixed.ends = ends
  end
  local found = ends[letter]
  if not found then
    local state = groups.state[letter]
    found = { state = state, rule = M.rule(fixed.keep or queue.root.keep, state), group = groups.of(state, fixed.name) }
    ends[letter] = found
    ended[#ended + 1] = found
    queue.filled(state)
  end
  return found
end

-- Indexes a job that reached a terminal state at `at`; returns false when its rule keeps nothing of it.
function M.finish(job, at)
  local fixed = job.fixed
  local place = end_of(fixed, job.letter)
  local state, rule = place.state, place.rule
  transitions = transitions + 1
  if queue.here.waiters then waiters.tell(job.id, job.letter, job.result or job.failure or "") end
  if rule.count == 0 then
    removal.forget(job.id, nil, fixed, at, true)
    return false
  end
  local score = arrival(state, at)
  turn_back(state, at)
  local list = plan.of("ZADD", queue.key[state])
  local n = #list
  list[n + 1], list[n + 2] = score, job.id
  if place.group then groups.join(place.group, score, job.id) end
  if fixed.keep and rule.age then plan.add("ZADD", queue.filled("aging"), text(at + rule.age), job.id) end
  return true
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
