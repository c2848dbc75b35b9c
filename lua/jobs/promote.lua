-- jobs/promote: makes a scheduled job ready now
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history group:*
-- ARGV   now slot number, id
-- REPLY  1, or 0 when the job is unknown or in another state
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  scheduled -> ready
local queue = require("lib.queue")
local plan = require("lib.plan")
local find = require("lib.find")
local ledger = require("lib.ledger")
local move = require("lib.move")

local refusal = queue.open(move.columns, move.fields)
if refusal then return refusal end
if queue.answer then return queue.answer end

local id = ARGV[queue.first]
local damage, job = find.job(id)
if damage then return damage end

local answer = "0"
if job and redis.call("ZSCORE", queue.key.sched, id) then
  plan.add("ZREM", queue.key.sched, id)
  ledger.stepped(job, "r", job.attempts)
  move.to_tail(job)
  answer = "1"
end
plan.add("HSET", KEYS[1], queue.slot(), queue.remembered(answer))
move.done()
return answer
