-- jobs/retry: gives a dead or quarantined job all its attempts again
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history progress waiters group:* w:*
-- ARGV   now slot number, id
-- REPLY  1, or 0 when the job is unknown or in another state
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  dead -> ready; quarantined -> ready
local queue = require("lib.queue")
local plan = require("lib.plan")
local find = require("lib.find")
local move = require("lib.move")
local operate = require("lib.operate")

local refusal = queue.open(move.columns, move.fields)
if refusal then return refusal end
if queue.answer then return queue.answer end

local damage, job = find.job(ARGV[queue.first])
if damage then return damage end

local answer = "0"
if job and (job.letter == "d" or job.letter == "q") then
  operate.retry(job)
  answer = "1"
end
plan.add("HSET", KEYS[1], queue.slot(), queue.remembered(answer))
move.done()
return answer
