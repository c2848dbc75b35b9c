-- sweep: bounded removal of what nobody needs any more
--
-- A terminal record goes at the earlier of its age and its state's ceiling. Its age is its own keep's, indexed by
-- `aging`, else the queue's as it stands now: those are met oldest first in the state's index, where root field
-- aged:<state> is the time up to which only records of an own keep are left. What a count rule gives up is pruned as
-- jobs finish; `uncounted` says that some of it was left (a bounded prune, an alter), and the groups are gone through.
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local head = require("lib.head")
local retention = require("lib.retention")

local M = {}

local STATES = { "completed", "dead", "cancelled", "quarantined" }
local GROUPS = 20           -- groups that one call looks at for more records than their rule keeps
local text = number.text

local function ceilings()
  local list = {}
  for each in string.gmatch(queue.root.history_ttl .. "/", "(%d*)/") do list[#list + 1] = tonumber(each) or false end
  return list
end

local function remove(state, scored)
  local count = retention.remove(state, scored)
  retention.commit()
  return count
end

-- Records with an age of their own that has passed.
local function aged(limit)
  if not queue.here.aging then return 0 end
  local ids = redis.call("ZRANGE", queue.key.aging, "-inf", queue.now, "BYSCORE", "LIMIT", 0, limit)
  if #ids == 0 then return 0 end
  local heads = redis.call("HMGET", queue.key.head, unpack(ids))
  local by_state = {}
  for i = 1, #ids do
    local job = heads[i] and head.parse(ids[i], heads[i])
    local state = job and retention.state[job.letter]
    local score = state and redis.call("ZSCORE", queue.key[state], ids[i])
    if score then
      by_state[state] = by_state[state] or {}
      table.insert(by_state[state], ids[i])
      table.insert(by_state[state], score)
    else
      plan.add("ZREM", queue.key.aging, ids[i])
    end
  end
  for state, scored in pairs(by_state) do retention.remove(state, scored) end
  retention.commit()
  return #ids
end

-- Records past the state's ceiling, oldest first.
local function past_ceiling(state, ceiling, limit)
  return remove(state, retention.excess(queue.key[state], { age = ceiling }, limit))
end

-- Records past the queue's own age, oldest first; those with a keep of their own are passed over.
local function past_age(state, age, limit)
  local field, cutoff = "aged:" .. state, text(queue.ms - age + 1)
  local from = redis.call("HGET", KEYS[1], field) or "-inf"
  local found = redis.call("ZRANGE", queue.key[state], from, "(" .. cutoff, "BYSCORE", "LIMIT", 0, limit, "WITHSCORES")
  if #found == 0 then return 0, 0 end
  local ids, scored = {}, {}
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  local heads = redis.call("HMGET", queue.key.head, unpack(ids))
  for i = 1, #ids do
    local job = heads[i] and head.parse(ids[i], heads[i])
    if not (job and job.fixed.keep) then
      scored[#scored + 1], scored[#scored + 2] = ids[i], found[i * 2]
    end
  end
  plan.add("HSET", KEYS[1], field, found[#found])
  return remove(state, scored), #ids
end

-- What the queue's count rule gives up, group by group.
local function uncounted(limit)
  if queue.root.uncounted ~= "1" then return 0, false end
  local found = redis.call("HSCAN", queue.key.groups, queue.root.group_scan or "0", "COUNT", GROUPS)
  local removed = 0
  for i = 1, #found[2], 2 do
    local state, name = string.match(found[2][i], "^(%a+):(.*)$")
    if removed < limit then removed = removed + retention.sweep_group(state, name, limit - removed) end
  end
  if removed >= limit then return removed, true end
  plan.add("HSET", KEYS[1], "group_scan", found[1])
  if found[1] == "0" then plan.add("HDEL", KEYS[1], "uncounted") end
  return removed, found[1] ~= "0"
end

-- Removes up to `limit` records of each kind and state; returns how many, and whether more are due.
function M.retention(limit)
  local removed = aged(limit)
  local more = removed == limit
  local list = ceilings()
  for i, state in ipairs(STATES) do
    if list[i] and queue.here[state] then
      local count = past_ceiling(state, list[i], limit)
      removed, more = removed + count, more or count == limit
    end
    local age = queue.here[state] and retention.queue_rule(state).age
    if age then
      local count, met = past_age(state, age, limit)
      removed, more = removed + count, more or met == limit
    end
  end
  local count, left = uncounted(limit)
  return removed + count, more or left
end

-- Ids whose memory has passed.
function M.dedup(limit)
  if not queue.here.seen then return 0 end
  local cutoff = text(queue.ms - tonumber(queue.root.dedup))
  local ids = redis.call("ZRANGE", queue.key.seen, "-inf", cutoff, "BYSCORE", "LIMIT", 0, limit)
  for i = 1, #ids do plan.add("ZREM", queue.key.seen, ids[i]) end
  return #ids
end

return M
