-- jobs/settle: ends leases: ack, fail, release, quarantine
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history progress waiters group:* w:*
-- ARGV   now slot number, then per settlement: what id token [data]
-- REPLY  one answer word per settlement, joined by commas
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  leased -> completed; leased -> scheduled; leased -> ready; leased -> dead; leased -> cancelled;
--        leased -> quarantined
local queue = require("lib.queue")
local settle = require("lib.settle")

return queue.run(function()
  local refusal = queue.open({}, { "keep", "first", "paused" })
  if refusal then return refusal end
  return queue.answer or settle.run(settle.arguments(queue.first), queue.remember)
end)
