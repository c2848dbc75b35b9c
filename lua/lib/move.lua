-- move: the one door through which a job changes its state
--
-- A move takes the job out of the one index it is in, puts it into the one of its new state, and writes its head.
-- Moves are planned; `done` writes them and lets the retention rules follow.
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local head = require("lib.head")
local ready = require("lib.ready")
local wake = require("lib.wake")
local retention = lazy("lib.retention")

local M = {
  -- all that a transition, and what follows from it, may touch
  columns = { "head", "body", "meta", "lease", "leased", "sched", "ready", "ranked", "ghost", "bell", "broken",
    "completed", "dead", "cancelled", "quarantined", "groups", "aging", "seen", "result", "error", "attempts",
    "history", "progress", "waiters" },
  fields = { "stamp", "paused", "first", "rank_tail", "rank_head", "lease", "timeout", "max_attempts", "backoff",
    "keep", "dedup", "history", "attempt_cap", "transition_cap", "uncounted", "aged:completed", "aged:dead",
    "aged:cancelled", "aged:quarantined" },
}

local function write(job)
  plan.add("HSET", queue.key.head, job.id, head.format(job))
end

function M.unlease(id)
  plan.add("HDEL", queue.key.lease, id)
  plan.add("ZREM", queue.key.leased, id)
end

function M.to_tail(job)
  job.letter = head.waiting(job)
  write(job)
  ready.to_tail(job)
end

function M.to_head(job)
  job.letter = head.waiting(job)
  write(job)
  ready.to_head(job)
end

function M.schedule(job, due)
  job.letter = head.waiting(job)
  write(job)
  wake.due("sched", due)
  plan.add("ZADD", queue.key.sched, number.text(due), job.id)
end

-- Into the terminal state of `letter`, as of `at`.
function M.finish(job, letter, at)
  job.letter = letter
  job.gone = not retention.finish(job, at)
  if not job.gone then write(job) end
end

function M.done()
  ready.enter()
  retention.commit()
  retention.prune()
end

return M
