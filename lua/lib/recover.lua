-- recover: what time alone makes takeable: leases that ran out, and scheduled jobs that are due
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local types = lazy("lib.types")
local touched = lazy("lib.touched")
local lapse = lazy("lib.lapse")
local due = lazy("lib.due")

local M = {}

local proven = false

-- Several transitions may follow one another in a call that recovers: all that they touch is proven before the first.
local function prove()
  if proven then return nil end
  proven = true
  return types.prove(queue, touched.columns)
end

-- Settles up to `limit` leases that ended at or before now; returns how many there were, and a refusal or nil.
function M.lapses(limit)
  local found = redis.call("ZRANGE", queue.key.leased, "-inf", queue.now, "BYSCORE", "LIMIT", 0, limit, "WITHSCORES")
  plan.proven[queue.key.leased] = true
  if #found == 0 then return 0, nil end
  local refusal = prove()
  if not refusal then lapse.all(found) end
  return #found / 2, refusal
end

-- Moves up to `limit` due jobs to the ready tail, in due order; returns how many there were, and a refusal or nil.
function M.due(limit)
  local ids = redis.call("ZRANGE", queue.key.sched, "-inf", queue.now, "BYSCORE", "LIMIT", 0, limit)
  plan.proven[queue.key.sched] = true
  if #ids == 0 then return 0, nil end
  local refusal = prove()
  if not refusal then due.all(ids) end
  return #ids, refusal
end

-- When the next lease ends or the next job is due, as text; "" when there is neither.
function M.next()
  local job = redis.call("ZRANGE", queue.key.sched, 0, 0, "WITHSCORES")[2]
  local held = redis.call("ZRANGE", queue.key.leased, 0, 0, "WITHSCORES")[2]
  local soonest = math.min(tonumber(job or "inf") or math.huge, tonumber(held or "inf") or math.huge)
  return soonest < math.huge and number.text(soonest) or ""
end

return M
