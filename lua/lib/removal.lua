-- removal: the end of records: all that the columns hold of them, and the memory of their ids
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local head = require("lib.head")
local groups = require("lib.groups")
local waiters = lazy("lib.waiters")

local M = {}

local GROUPS = 1000
local OWNED = { "body", "head", "meta", "result", "error", "attempts", "history", "progress" }
local text = number.text

local function append(command, key, ids)
  local list = plan.of(command, key)
  local n = #list
  for i = 1, #ids do list[n + i] = ids[i] end
end

-- Plans the end of all that the columns and the index of their state hold of some jobs.
local function drop(ids, state)
  for i = 1, #OWNED do
    if queue.here[OWNED[i]] then append("HDEL", queue.key[OWNED[i]], ids) end
  end
  if not state then return end
  append("ZREM", queue.key[state], ids)
  if queue.here.aging then append("ZREM", queue.key.aging, ids) end
end

-- Plans what else the end of a record means: waiters learn of it, a custom id is remembered, its group loses it.
local function part(id, state, fixed, finished, remember)
  if queue.here.waiters then waiters.tell(id, "g", "") end
  if remember and (not fixed or fixed.custom) and finished + tonumber(queue.root.dedup) > queue.ms then
    plan.add("ZADD", queue.key.seen, text(finished), id)
  end
  local group = state and fixed and groups.of(state, fixed.name)
  if group then groups.quit(group, id) end
end

-- Plans the end of a job's record; with `remember`, its custom id goes on blocking until the dedup time has passed.
function M.forget(id, state, fixed, finished, remember)
  drop({ id }, state)
  part(id, state, fixed, finished, remember)
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

-- Plans the removal of the records of one state; `scored` alternates ids and index scores. `group` is where they were
-- found, if it was in one: a damaged head does not say it.
function M.remove(state, scored, group)
  local ids = {}
  for i = 1, #scored, 2 do ids[#ids + 1] = scored[i] end
  if #ids == 0 then return 0 end
  local heads = redis.call("HMGET", queue.key.head, unpack(ids))
  drop(ids, state)
  for i = 1, #ids do
    local fixed = heads[i] and head.fixed(heads[i])
    part(ids[i], state, fixed, math.floor(tonumber(scored[i * 2])), true)
    if group and not fixed then groups.quit(group, ids[i]) end
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

-- Prunes a group by a rule, `limit` records at most; returns how many went.
function M.prune(group, rule, limit)
  local count = M.remove(group.state, M.excess(group.key, rule, limit), group)
  plan.commit()
  return count
end

return M
