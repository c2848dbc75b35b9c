-- jobs/promote: makes a scheduled job ready now
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history progress waiters group:* w:*
-- ARGV   now slot number, id
-- REPLY  1, or 0 when the job is unknown or in another state
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  scheduled -> ready
local queue = require("lib.queue")
local step = require("lib.step")
local operate = require("lib.operate")

return step.run(function(job)
  return redis.call("ZSCORE", queue.key.sched, job.id) ~= false
end, operate.promote)
