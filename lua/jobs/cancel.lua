-- jobs/cancel: ends a waiting job, or asks the holder of a leased one to stop
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history group:*
-- ARGV   now slot number, id
-- REPLY  cancelled, requested, too-late or unknown
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  ready -> cancelled; scheduled -> cancelled
local queue = require("lib.queue")
local plan = require("lib.plan")
local find = require("lib.find")
local lease = require("lib.lease")
local ready = require("lib.ready")
local ledger = require("lib.ledger")
local move = require("lib.move")
local number = require("lib.number")

local refusal = queue.open(move.columns, move.fields)
if refusal then return refusal end
if queue.answer then return queue.answer end

local id = ARGV[queue.first]
local damage, job, held = find.job(id)
if damage then return damage end

local function ask()
  plan.add("HSET", queue.key.lease, id,
    lease.text(held.token, number.text(held.attempt), held.started and "S" or "U", held.taken, held.worker))
  return "requested"
end

local function finish()
  if redis.call("ZSCORE", queue.key.sched, id) then
    plan.add("ZREM", queue.key.sched, id)
  else
    ready.leave(job)
  end
  ledger.stepped(job, "x", job.attempts)
  ledger.failure(job, nil)
  job.last, job.mark = nil, ""
  move.finish(job, "x", queue.ms)
  return "cancelled"
end

local answer
if not job then
  answer = "unknown"
elseif not job.waiting then
  answer = "too-late"
elseif held then
  answer = ask()
else
  answer = finish()
end
plan.add("HSET", KEYS[1], queue.slot(), queue.remembered(answer))
move.done()
return answer
