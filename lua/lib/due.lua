-- due: scheduled jobs whose time has come
local queue = require("lib.queue")
local plan = require("lib.plan")
local head = require("lib.head")
local ready = require("lib.ready")
local move = require("lib.move")
local aside = lazy("lib.aside")

local M = {}

-- Moves the jobs to the ready tail, in the order of `ids`.
function M.all(ids)
  local heads = redis.call("HMGET", queue.key.head, unpack(ids))
  local leave = plan.of("ZREM", queue.key.sched)
  for i = 1, #ids do
    leave[i] = ids[i]
    local job = heads[i] and head.parse(ids[i], heads[i])
    if job and job.waiting then
      ready.to_tail(ids[i], job.fixed)
    else
      aside.set(ids[i], heads[i] and "its head is damaged" or "it is scheduled but has no head")
    end
  end
  move.done()
end

return M
