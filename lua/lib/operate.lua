-- operate: what operators do to a job that nobody holds
local queue = require("lib.queue")
local plan = require("lib.plan")
local ready = require("lib.ready")
local ghosts = lazy("lib.ghosts")
local ledger = require("lib.ledger")
local past = require("lib.past")
local move = require("lib.move")
local removal = require("lib.removal")
local groups = require("lib.groups")

local INDEXES = { "sched", "ranked", "leased", "completed", "dead", "cancelled", "quarantined", "aging" }

local M = { popped = false }  -- popped: the ready jobs in hand are taken off their index by the caller

-- Takes a waiting job out of the index it stands in.
local function unqueue(job)
  if redis.call("ZSCORE", queue.key.sched, job.id) then
    plan.add("ZREM", queue.key.sched, job.id)
  elseif not M.popped then
    ready.leave(job.id, job.fixed)
  end
end

-- Gives a dead or quarantined job all its attempts again.
function M.retry(job)
  removal.unfinish(job)
  past.stepped(job, "r", 0)
  ledger.failure(job, nil)
  job.earlier, job.attempts = job.earlier + job.attempts, 0
  move.to_tail(job)
end

function M.promote(job)
  plan.add("ZREM", queue.key.sched, job.id)
  past.stepped(job, "r", job.attempts)
  move.to_tail(job)
end

-- Ends a waiting job as cancelled; what settled it before no longer answers.
function M.cancel(job)
  unqueue(job)
  past.stepped(job, "x", job.attempts)
  job.last, job.mark = nil, ""
  move.finish(job, "x", queue.ms)
end

-- Deletes a job. With `remember` a custom id goes on blocking, from its end or, if it never ended, from now.
function M.remove(job, remember)
  if job.waiting then
    unqueue(job)
    removal.forget(job.id, nil, job.fixed, queue.ms, remember)
  else
    local state = groups.state[job.letter]
    local at = remember and redis.call("ZSCORE", queue.key[state], job.id)
    removal.forget(job.id, state, job.fixed, at and math.floor(tonumber(at)) or queue.ms, remember)
  end
end

-- Deletes what is left of a damaged job. It may stand anywhere, so it leaves every index.
function M.remove_remains(id)
  for _, index in ipairs(INDEXES) do plan.add("ZREM", queue.key[index], id) end
  plan.add("HDEL", queue.key.lease, id)
  plan.add("HDEL", queue.key.broken, id)
  ghosts.add_if_live(id)
  removal.leave_any_group(id)
  removal.forget(id, nil, nil, 0, false)
end

return M
