-- sweep: bounded removal of what nobody needs any more
--
-- A terminal record goes at the earlier of its age and its state's ceiling. Its age is its own keep's, indexed by
-- `aging`, else the queue's as it stands now: those are met oldest first in the state's index, where root field
-- aged:<state> is the last record of an own keep that was passed over, score "|" id.
--
-- What a count rule gives up is pruned as jobs finish. Root field `uncounted` says that some of it was left (a bounded
-- prune, an alter): "1", and "2" while the groups are gone through and no more was left meanwhile.
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local head = require("lib.head")
local removal = require("lib.removal")
local retention = require("lib.retention")
local groups = require("lib.groups")
local listing = lazy("lib.listing")

local M = {}

local STATES = { "completed", "dead", "cancelled", "quarantined" }
local GROUPS = 100          -- groups that one call looks at for more records than their rule keeps
local LOOK = 100            -- records that a call looks at, however few it may remove
local text = number.text

local function rule_of(state)
  return retention.rule(queue.root.keep, state)
end

-- The first score that is not yet `age` old.
local function young(age)
  return "(" .. text(queue.ms - age + 1)
end

local function remove(state, ids, group)
  local count = removal.remove(state, ids, group)
  plan.commit()
  return count
end

-- Each of the following removes up to `limit` records, and returns how many it did and whether more are due.

-- Records with an age of their own that has passed.
local function past_own_age(limit)
  local due = queue.here.aging and redis.call("ZCOUNT", queue.key.aging, "-inf", queue.now) or 0
  local ids = due > 0 and limit > 0
    and redis.call("ZRANGE", queue.key.aging, "-inf", queue.now, "BYSCORE", "LIMIT", 0, limit) or {}
  local heads = #ids > 0 and redis.call("HMGET", queue.key.head, unpack(ids)) or {}
  local by_state, removed = {}, 0
  for i = 1, #ids do
    local job = heads[i] and head.parse(ids[i], heads[i])
    local state = job and groups.state[job.letter]
    if state and redis.call("ZSCORE", queue.key[state], ids[i]) then
      by_state[state] = by_state[state] or {}
      table.insert(by_state[state], ids[i])
    else
      plan.add("ZREM", queue.key.aging, ids[i])
    end
  end
  for state, aged in pairs(by_state) do removed = removed + remove(state, aged) end
  plan.commit()
  return removed, due > #ids
end

-- Records past the state's ceiling, oldest first.
local function past_ceiling(state, ceiling, limit)
  local due = redis.call("ZCOUNT", queue.key[state], "-inf", young(ceiling))
  local removed = remove(state, removal.excess(queue.key[state], 0, { age = ceiling }, limit))
  return removed, due > removed
end

-- Records past the queue's own age, oldest first; those with a keep of their own are passed over. `more` may stand for
-- some of those, too, until they were looked at.
local function past_age(state, age, limit)
  local key, field = queue.key[state], "aged:" .. state
  local score, id = string.match(queue.root[field] or "", "^([^|]+)|(.*)$")
  local from, due = score and listing.behind(key, score, id) or 0, redis.call("ZCOUNT", key, "-inf", young(age))
  if limit == 0 or from >= due then return 0, from < due end
  local found = redis.call("ZRANGE", key, from, math.min(due, from + math.max(limit, LOOK)) - 1, "WITHSCORES")
  local ids, aged, met, passed = {}, {}, 0, nil
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  local heads = redis.call("HMGET", queue.key.head, unpack(ids))
  for i = 1, #ids do
    local fixed = heads[i] and head.fixed(heads[i])
    if fixed and fixed.keep then
      passed = found[i * 2] .. "|" .. ids[i]
    elseif #aged < limit then
      aged[#aged + 1] = ids[i]
    else
      break
    end
    met = i
  end
  if passed then plan.add("HSET", KEYS[1], field, passed) end
  return remove(state, aged), from + met < due
end

-- What the queue's count rule gives up, group by group.
local function uncounted(limit)
  local noted = queue.root.uncounted
  if not noted then return 0, false end
  local from, removed = queue.root.group_scan or "0", 0
  local found = redis.call("HSCAN", queue.key.groups, from, "COUNT", GROUPS)
  for i = 1, #found[2], 2 do
    local state, name = string.match(found[2][i], "^(%a+):(.*)$")
    local rule = state and rule_of(state)
    local group = rule and rule.count and groups.of(state, name)
    if group and group.size > rule.count then
      local ids = removal.excess(group.key, group.size, { count = rule.count }, limit - removed)
      removed = removed + remove(state, ids, group)
      if group.size > rule.count then return removed, true end
    end
  end
  plan.add("HSET", KEYS[1], "group_scan", found[1])
  local complete = found[1] == "0" and (from == "0" or noted == "2")
  if complete then
    plan.add("HDEL", KEYS[1], "uncounted")
  elseif from == "0" then
    plan.add("HSET", KEYS[1], "uncounted", "2")
  end
  return removed, not complete
end

local function ceilings()
  local list = {}
  for each in string.gmatch(queue.root.history_ttl .. "/", "(%d*)/") do list[#list + 1] = tonumber(each) or false end
  return list
end

-- What has to be looked at, each a function of the records that may still go.
local function duties()
  local list, ceiling = { past_own_age, uncounted }, ceilings()
  for i, state in ipairs(STATES) do
    if queue.here[state] then
      local age = rule_of(state).age
      if ceiling[i] then list[#list + 1] = function(limit) return past_ceiling(state, ceiling[i], limit) end end
      if age then list[#list + 1] = function(limit) return past_age(state, age, limit) end end
    end
  end
  return list
end

-- Removes up to `limit` records; returns how many, and whether more are due. While there are more, each duty comes
-- first in turn (root field `turn`), so that the backlog of one never starves another.
function M.retention(limit)
  local list, turn = duties(), tonumber(queue.root.turn or "0")
  local removed, more = 0, false
  for i = 1, #list do
    local count, left = list[(turn + i) % #list + 1](limit - removed)
    removed, more = removed + count, more or left
  end
  if more then plan.add("HSET", KEYS[1], "turn", text((turn + 1) % #list)) end
  return removed, more
end

-- Ids whose memory has passed; returns how many went, and whether more have.
function M.dedup(limit)
  if not queue.here.seen then return 0, false end
  local cutoff = text(queue.ms - tonumber(queue.root.dedup))
  local due = redis.call("ZCOUNT", queue.key.seen, "-inf", cutoff)
  if due == 0 then return 0, false end
  local ids = redis.call("ZRANGE", queue.key.seen, "-inf", cutoff, "BYSCORE", "LIMIT", 0, limit)
  plan.append("ZREM", queue.key.seen, ids)
  return #ids, due > #ids
end

return M
