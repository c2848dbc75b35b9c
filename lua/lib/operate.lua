-- operate: what operators do to a job that nobody holds
local queue = require("lib.queue")
local plan = require("lib.plan")
local ready = require("lib.ready")
local ledger = require("lib.ledger")
local move = require("lib.move")
local retention = require("lib.retention")

local M = { popped = false }  -- popped: the ready jobs in hand are taken off their index by the caller

-- Takes a waiting job out of the index it stands in.
local function unqueue(job)
  if redis.call("ZSCORE", queue.key.sched, job.id) then
    plan.add("ZREM", queue.key.sched, job.id)
  elseif not M.popped then
    ready.leave(job)
  end
end

-- Gives a dead or quarantined job all its attempts again.
function M.retry(job)
  retention.leave(job)
  ledger.stepped(job, "r", 0)
  ledger.failure(job, nil)
  job.earlier, job.attempts = job.earlier + job.attempts, 0
  move.to_tail(job)
end

function M.promote(job)
  plan.add("ZREM", queue.key.sched, job.id)
  ledger.stepped(job, "r", job.attempts)
  move.to_tail(job)
end

-- Ends a waiting job as cancelled; what settled it before no longer answers.
function M.cancel(job)
  unqueue(job)
  ledger.stepped(job, "x", job.attempts)
  ledger.failure(job, nil)
  job.last, job.mark = nil, ""
  move.finish(job, "x", queue.ms)
end

-- Deletes a job. With `remember` a custom id goes on blocking, from its end or, if it never ended, from now.
function M.remove(job, remember)
  if job.waiting then
    unqueue(job)
    retention.forget(job.id, nil, job.fixed, queue.ms, remember)
  else
    local state = retention.state[job.letter]
    local at = remember and redis.call("ZSCORE", queue.key[state], job.id)
    retention.forget(job.id, state, job.fixed, at and math.floor(tonumber(at)) or queue.ms, remember)
  end
end

return M
