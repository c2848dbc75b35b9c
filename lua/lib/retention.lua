-- retention: terminal jobs: their indexes, the rules that prune them, and the memory of their ids
--
-- A state's index is scored by finish time, and by arrival inside one millisecond (in 2,048ths). group:<state>:<name>
-- holds the same scores for the jobs of one name, so that a rule prunes without reading what it keeps.
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local head = require("lib.head")
local aside = lazy("lib.aside")
local waiters = lazy("lib.waiters")

local M = { state = { c = "completed", d = "dead", x = "cancelled", q = "quarantined" } }

local PLACE = { completed = 1, dead = 2, cancelled = 3, quarantined = 4 }
local PER_MS = 2048
local GROUPS = 1000
local OWNED = { "body", "head", "meta", "result", "error", "attempts", "history", "progress" }

local text, match = number.text, string.match
local rules = {}            -- rule text -> state -> { count, age }
local groups = {}           -- state:name -> { key, field, known, usable, left }
local scores = {}           -- state .. at -> the last score given
local ended = {}            -- what this call finished: { group, state, rule }

local function rule_of(keep, state)
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

-- The group's key, or nil when a foreign type sits there: then the jobs of that name go without a count rule.
local function group_of(state, name)
  local field = state .. ":" .. name
  local group = groups[field]
  if not group then
    local key = KEYS[1] .. ":group:" .. field
    local found = redis.call("TYPE", key)["ok"]
    group = { key = key, field = field, known = found ~= "none", usable = found == "none" or found == "zset" }
    groups[field] = group
    if not group.usable then aside.set(key, "it holds a " .. found .. " where a zset belongs") end
  end
  return group.usable and group or nil
end

local function join_group(group, score, id)
  if not group.known then
    group.known = true
    plan.add("HSET", queue.key.groups, group.field, "")
  end
  plan.add("ZADD", group.key, score, id)
end

local function leave_group(state, name, id)
  local group = group_of(state, name)
  if group then
    group.left = true
    plan.add("ZREM", group.key, id)
  end
end

-- Takes a damaged job, whose name nobody knows, out of its group. Where there are too many groups to look at, its entry
-- is given up when it is its group's oldest.
function M.leave_any_group(id)
  if redis.call("HLEN", queue.key.groups) > GROUPS then return end
  for _, field in ipairs(redis.call("HKEYS", queue.key.groups)) do
    local state, name = match(field, "^(%a+):(.*)$")
    local group = state and group_of(state, name)
    if group and redis.call("ZSCORE", group.key, id) then leave_group(state, name, id) end
  end
end

-- Writes what is planned; a group that lost its last job is no longer listed.
local function commit()
  plan.commit()
  for field, group in pairs(groups) do
    if group.left then
      group.left = nil
      if redis.call("EXISTS", group.key) == 0 then
        group.known = false
        redis.call("HDEL", queue.key.groups, field)
      end
    end
  end
end
M.commit = commit

local function arrival(state, at)
  local known = scores[state .. text(at)]
  if not known then
    local newest = redis.call("ZRANGE", queue.key[state], "(" .. text(at + 1), text(at), "BYSCORE", "REV",
      "LIMIT", 0, 1, "WITHSCORES")
    known = newest[2] and tonumber(newest[2]) or at - 1 / PER_MS
  end
  local score = math.min(known + 1 / PER_MS, at + (PER_MS - 1) / PER_MS)
  scores[state .. text(at)] = score
  return string.format("%.17g", score)
end

-- Plans the end of a job's record; with `remember`, its custom id goes on blocking until the dedup time has passed.
local function forget(id, state, fixed, finished, remember)
  waiters.tell(id, "g", "")
  for i = 1, #OWNED do
    local column = OWNED[i]
    if queue.here[column] then plan.add("HDEL", queue.key[column], id) end
  end
  if remember and (not fixed or fixed.custom) and finished + tonumber(queue.root.dedup) > queue.ms then
    plan.add("ZADD", queue.key.seen, text(finished), id)
  end
  if not state then return end
  plan.add("ZREM", queue.key[state], id)
  if queue.here.aging then plan.add("ZREM", queue.key.aging, id) end
  if fixed then leave_group(state, fixed.name, id) end
end
M.forget = forget

-- A record that finished in the past may stand before what the sweep has passed.
local function turn_back(state, at)
  local passed = queue.root["aged:" .. state]
  if passed and at < tonumber(passed) then
    queue.root["aged:" .. state] = nil
    plan.add("HDEL", KEYS[1], "aged:" .. state)
  end
end

-- Indexes a job that reached a terminal state at `at`; returns false when its rule keeps nothing of it.
function M.finish(job, at)
  local state = M.state[job.letter]
  local rule = rule_of(job.fixed.keep or queue.root.keep, state)
  local group = group_of(state, job.fixed.name)
  ended[#ended + 1] = { group = group, state = state, rule = rule }
  waiters.tell(job.id, job.letter, job.result or job.failure or "")
  if rule.count == 0 then
    forget(job.id, nil, job.fixed, at, true)
    return false
  end
  local score = arrival(state, at)
  turn_back(state, at)
  plan.add("ZADD", queue.key[state], score, job.id)
  if group then join_group(group, score, job.id) end
  if job.fixed.keep and rule.age then
    plan.add("ZADD", queue.filled("aging"), text(at + rule.age), job.id)
  end
  return true
end

-- Takes a terminal job out of its indexes, for a retry.
function M.leave(job)
  local state = M.state[job.letter]
  plan.add("ZREM", queue.key[state], job.id)
  if queue.here.aging then plan.add("ZREM", queue.key.aging, job.id) end
  leave_group(state, job.fixed.name, job.id)
end

-- Plans the removal of the records of one state; `scored` alternates ids and index scores. `group` is where they were
-- found, if it was in one: a damaged head does not say it.
function M.remove(state, scored, group)
  local ids = {}
  for i = 1, #scored, 2 do ids[#ids + 1] = scored[i] end
  if #ids == 0 then return 0 end
  local heads = redis.call("HMGET", queue.key.head, unpack(ids))
  for i = 1, #ids do
    local job = heads[i] and head.parse(ids[i], heads[i])
    forget(ids[i], state, job and job.fixed, math.floor(tonumber(scored[i * 2])), true)
    if group and not job then
      group.left = true
      plan.add("ZREM", group.key, ids[i])
    end
  end
  return #ids
end

-- The lowest `limit` of `key` that rule and clock give up: the oldest beyond `count`, and all that are of `age`.
function M.excess(key, rule, limit)
  local over = rule.count and redis.call("ZCARD", key) - rule.count or 0
  local aged = rule.age and redis.call("ZCOUNT", key, "-inf", "(" .. text(queue.ms - rule.age + 1)) or 0
  local take = math.min(limit, math.max(over, aged))
  return take > 0 and redis.call("ZRANGE", key, 0, take - 1, "WITHSCORES") or {}
end

function M.queue_rule(state)
  return rule_of(queue.root.keep, state)
end

-- Prunes one group by the queue's count; returns how many records went.
function M.sweep_group(state, name, limit)
  local group = group_of(state, name)
  local rule = rule_of(queue.root.keep, state)
  if not group or not rule or not rule.count then return 0 end
  local removed = M.remove(state, M.excess(group.key, { count = rule.count }, limit), group)
  commit()
  return removed
end

-- After the transitions of a call are written: each finished job's rule prunes its group, 2n + 10 records at most.
function M.prune()
  local budget = 2 * #ended + 10
  local done = {}
  for i = 1, #ended do
    local each = ended[i]
    local mark = each.group and each.group.key .. "|" .. tostring(each.rule)
    if mark and not done[mark] and budget > 0 then
      done[mark] = true
      local excess = M.excess(each.group.key, each.rule, budget)
      budget = budget - M.remove(each.state, excess, each.group)
      if budget == 0 and queue.root.uncounted ~= "1" then plan.add("HSET", KEYS[1], "uncounted", "1") end
      if #excess > 0 then commit() end
    end
  end
  ended = {}
end

return M
