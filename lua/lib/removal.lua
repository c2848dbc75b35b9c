-- removal: the end of records: all that the columns hold of them, and the memory of their ids
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local head = require("lib.head")
local groups = require("lib.groups")
local waiters = lazy("lib.waiters")

local M = {}

local GROUPS = 1000
local SELDOM = { "meta", "result", "error", "attempts", "history", "progress" }    -- columns that not every job has
local OPTIONAL = { "aging", unpack(SELDOM) }
local text = number.text

-- Plans the end of all that the columns and the index of their state hold of some jobs.
local function drop(ids, state)
  queue.look(OPTIONAL)
  plan.append("HDEL", queue.key.body, ids)
  plan.append("HDEL", queue.key.head, ids)
  for i = 1, #SELDOM do
    if queue.here[SELDOM[i]] then plan.append("HDEL", queue.key[SELDOM[i]], ids) end
  end
  if not state then return end
  plan.append("ZREM", queue.key[state], ids)
  if queue.here.aging then plan.append("ZREM", queue.key.aging, ids) end
end

-- An id that its producer chose goes on blocking until the dedup time has passed.
local function remember(id, finished)
  if finished + tonumber(queue.root.dedup) > queue.ms then plan.add("ZADD", queue.key.seen, text(finished), id) end
end

local function leave_group(id, state, fixed)
  local group = groups.of(state, fixed.name)
  if group then groups.quit(group, id) end
end

-- Plans the end of a job's record; with `remembered`, its custom id stays known.
function M.forget(id, state, fixed, finished, remembered)
  drop({ id }, state)
  if queue.here.waiters then waiters.tell(id, "g", "") end
  if remembered and (not fixed or fixed.custom) then remember(id, finished) end
  if state and fixed then leave_group(id, state, fixed) end
end

-- Takes a terminal job out of its indexes, for a retry.
function M.unfinish(job)
  local state = groups.state[job.letter]
  plan.add("ZREM", queue.key[state], job.id)
  if queue.here.aging then plan.add("ZREM", queue.key.aging, job.id) end
  local group = groups.of(state, job.fixed.name)
  if group then groups.quit(group, job.id) end
end

-- Takes a damaged job, whose name nobody knows, out of its group. Where there are too many groups to look at, its entry
-- is given up when it is its group's oldest.
function M.leave_any_group(id)
  if redis.call("HLEN", queue.key.groups) > GROUPS then return end
  local cursor = "0"
  repeat
    local found = redis.call("HSCAN", queue.key.groups, cursor, "COUNT", GROUPS)
    for i = 1, #found[2], 2 do
      local state, name = string.match(found[2][i], "^(%a+):(.*)$")
      local group = state and groups.of(state, name)
      if group and redis.call("ZSCORE", group.key, id) then groups.quit(group, id) end
    end
    cursor = found[1]
  until cursor == "0"
end

-- Plans the removal of the records `ids` of one state. `group` is where they were found, if it was in one: a damaged
-- head does not say it.
function M.remove(state, ids, group)
  if #ids == 0 then return 0 end
  local heads = redis.call("HMGET", queue.key.head, unpack(ids))
  local finished
  drop(ids, state)
  for i = 1, #ids do
    local fixed = heads[i] and head.fixed(heads[i])
    if not fixed or fixed.custom then
      finished = finished or redis.call("ZMSCORE", queue.key[state], unpack(ids))
      if finished[i] then remember(ids[i], math.floor(tonumber(finished[i]))) end
    end
    if not group and fixed then leave_group(ids[i], state, fixed) end
    if queue.here.waiters then waiters.tell(ids[i], "g", "") end
  end
  if group then groups.quit_all(group, ids) end
  return #ids
end

-- The lowest `limit` of `key`, which holds `size`, that rule and clock give up: the oldest beyond `count`, and all that
-- are of `age`.
function M.excess(key, size, rule, limit)
  local over = rule.count and size - rule.count or 0
  local aged = rule.age and redis.call("ZCOUNT", key, "-inf", "(" .. text(queue.ms - rule.age + 1)) or 0
  local take = math.min(limit, math.max(over, aged))
  return take > 0 and redis.call("ZRANGE", key, 0, take - 1) or {}
end

-- Prunes a group by a rule, `limit` records at most; returns how many went.
function M.prune(group, rule, limit)
  local count = M.remove(group.state, M.excess(group.key, group.size, rule, limit), group)
  plan.commit()
  return count
end

return M
