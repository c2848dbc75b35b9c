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

local M = {}

local ended = false         -- whether a job reached a terminal state

local function write(job)
  plan.add("HSET", queue.key.head, job.id, head.format(job))
end

function M.unlease(id)
  local lease, leased = plan.of("HDEL", queue.key.lease), plan.of("ZREM", queue.key.leased)
  lease[#lease + 1] = id
  leased[#leased + 1] = id
end

function M.to_tail(job)
  job.letter = head.waiting(job)
  write(job)
  ready.to_tail(job.id, job.fixed)
end

function M.to_head(job)
  job.letter = head.waiting(job)
  write(job)
  ready.to_head(job.id, job.fixed)
end

function M.schedule(job, due)
  job.letter = head.waiting(job)
  write(job)
  wake.due("sched", due)
  plan.add("ZADD", queue.key.sched, number.text(due), job.id)
end

-- Into the terminal state of `letter`, as of `at`.
function M.finish(job, letter, at)
  job.letter, ended = letter, true
  job.gone = not retention.finish(job.id, job.fixed, letter, at, job.result or job.failure)
  if not job.gone then write(job) end
end

-- Ends the leases of jobs that reach a terminal state by another way than `finish` (lib/success).
function M.end_leases(ids)
  ended = true
  plan.append("HDEL", queue.key.lease, ids)
  plan.append("ZREM", queue.key.leased, ids)
end

function M.done()
  ready.enter()
  plan.commit()
  if ended then retention.prune() end
  ended = false
end

return M
