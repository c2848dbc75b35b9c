-- endings: the ends of a lease that are not a first attempt's success
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local lease = require("lib.lease")
local retry = lazy("lib.retry")
local ledger = require("lib.ledger")
local move = require("lib.move")

local M = {}

function M.max_attempts(job)
  return job.fixed.max or tonumber(queue.root.max_attempts)
end

local function acked(job, held, data)
  if data then
    plan.add("HSET", queue.filled("result"), job.id, data)
    job.result = data
  end
  ledger.settled(job, "a", held, queue.ms, "c")
  ledger.failure(job, nil)
  move.finish(job, "c", queue.ms)
  return "A"
end

local function ended(job, verb, held, letter)
  ledger.settled(job, verb, held, queue.ms, letter)
  move.finish(job, letter, queue.ms)
  return letter
end

local function waits(job, verb, held, wait)
  if wait > 0 then
    ledger.settled(job, verb, held, queue.ms, "s", queue.ms + wait)
    move.schedule(job, queue.ms + wait)
    return "s" .. number.text(queue.ms + wait)
  end
  ledger.settled(job, verb, held, queue.ms, "r")
  if verb == "r" then move.to_head(job) else move.to_tail(job) end
  return "r"
end

local function failed(job, held, wait, data)
  ledger.failure(job, data)
  if held.cancel then return ended(job, "f", held, "x") end
  if wait == "!" or held.attempt >= M.max_attempts(job) then return ended(job, "f", held, "d") end
  return waits(job, "f", held, tonumber(wait) or retry.delay(queue.root.backoff, job.id, held.attempt))
end

local function released(job, held, wait)
  if held.cancel then return ended(job, "r", held, "x") end
  return waits(job, "r", held, tonumber(wait) or 0)
end

local function begin(id, held)
  plan.add("HSET", queue.key.lease, id,
    lease.text(held.token, number.text(held.attempt), held.cancel and "S" or "s", held.taken, held.worker))
  return "b"
end

-- Settles a job by the lease that it is held under; `wait` and `data` as in lib/settle.
function M.settle(job, verb, wait, data, held)
  if verb == "b" then return begin(job.id, held) end
  move.unlease(job.id)
  if verb == "r" and not held.cancel then return released(job, held, wait) end
  job.attempts = held.attempt
  if verb == "a" then return acked(job, held, data) end
  if verb == "f" then return failed(job, held, wait, data) end
  if verb == "r" then return released(job, held, wait) end
  ledger.failure(job, data)
  return ended(job, "q", held, "q")
end

-- The answer to a token that holds no lease now, from the job's last settlement, or the token of an ack just made: its
-- own verb's first answer again, or lost.
function M.again(last, verb, token)
  if type(last) == "string" then last = { verb = "a", token = last } end
  if not last or token == "" or last.token ~= token or last.verb ~= verb then return "L" end
  if verb == "a" then return "B" end
  return last.state .. last.due
end

return M
