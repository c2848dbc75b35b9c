-- jobs/cancel: ends a waiting job, or asks the holder of a leased one to stop
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history progress waiters group:* w:*
-- ARGV   now slot number, id
-- REPLY  cancelled, requested, too-late or unknown
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  ready -> cancelled; scheduled -> cancelled
local queue = require("lib.queue")
local plan = require("lib.plan")
local find = require("lib.find")
local lease = require("lib.lease")
local move = require("lib.move")
local touched = require("lib.touched")
local number = require("lib.number")
local operate = require("lib.operate")

local refusal = queue.open(touched.columns, touched.fields)
if refusal then return refusal end
if queue.answer then return queue.answer end

local damage, job, held = find.job(ARGV[queue.first])
if damage then return damage end

local answer
if not job then
  answer = "unknown"
elseif not job.waiting then
  answer = "too-late"
elseif held then
  answer = "requested"
  plan.add("HSET", queue.key.lease, job.id,
    lease.text(held.token, number.text(held.attempt), held.started and "S" or "U", held.taken, held.worker))
else
  answer = "cancelled"
  operate.cancel(job)
end
queue.remember(answer)
move.done()
return answer
