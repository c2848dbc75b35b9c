-- ledger: what a settlement leaves in the job's head, and the detail of its latest failure
--
-- The last settlement stands in the head alone: a job that succeeds at its first attempt has no row anywhere. When a
-- newer one comes, the older is folded into rows (lib/past).
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local detail = lazy("lib.detail")
local past = lazy("lib.past")

local M = {}

-- Records that a claim was settled: `verb` by the lease `held`, at `at`, into the state of `letter`.
function M.settled(job, verb, held, at, letter, due)
  if job.mark == "|" then past.fold(job) end
  job.last = { verb = verb, at = number.text(at), state = letter, due = due and number.text(due) or "",
    token = held.token, attempt = held.attempt, taken = held.taken, worker = held.worker, lease = held.text }
  job.mark = "|"
end

-- Keeps, or takes away, the detail of the latest failure.
function M.failure(job, failure)
  if failure and queue.root.history ~= "full" then failure = detail.bare(failure) end
  job.failure = failure
  if failure then
    plan.add("HSET", queue.filled("error"), job.id, failure)
  elseif queue.here.error then
    plan.add("HDEL", queue.key.error, job.id)
  end
end

return M
