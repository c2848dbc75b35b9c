-- jobs/take: leases ready jobs, after recovering lapsed leases and promoting due jobs
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history progress waiters group:* w:*
-- ARGV   now slot number, nonce floor limit lease starts worker
-- REPLY  now lease-end first-stamp max-attempts timeout more next ids heads bodies metas
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  ready -> leased; scheduled -> ready; leased -> scheduled; leased -> ready; leased -> dead; leased -> cancelled
local queue = require("lib.queue")
local claim = require("lib.claim")

return queue.run(function()
  local refusal = queue.open({}, claim.fields)
  if refusal then return refusal end
  return queue.answer and claim.again(queue.first, queue.answer) or claim.run(queue.first, "")
end)
