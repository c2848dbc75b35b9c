-- jobs/exchange: settles a batch and takes the next one
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history progress waiters group:* w:*
-- ARGV   now slot number, nonce floor limit lease starts worker, then per settlement: verb id token extra data
-- REPLY  answer words of the settlements, the reply of a take
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  leased -> completed; leased -> scheduled; leased -> ready; leased -> dead; leased -> cancelled;
--        leased -> quarantined; ready -> leased; scheduled -> ready
local queue = require("lib.queue")
local plan = require("lib.plan")
local move = require("lib.move")
local wake = require("lib.wake")
local settle = require("lib.settle")
local claim = require("lib.claim")

local refusal = queue.open(move.columns, move.fields)
if refusal then return refusal end

-- the slot holds: answers ";" what the take remembers
if queue.answer then
  local answers, taken = string.match(queue.answer, "^([^;]*);(.*)$")
  local again = taken ~= "" and claim.again(queue.first, taken)
  return { answers, again or claim.run(queue.first, answers .. ";") }
end
local from = queue.first + claim.width
local limit = tonumber(ARGV[queue.first + 2])
wake.hush(limit > 0)
local answers = table.concat(settle.run(settle.arguments(from)), ",")
if #answers > 0 then
  plan.add("HSET", KEYS[1], queue.slot(), queue.remembered(answers .. ";"))
  plan.commit()
end
return { answers, claim.run(queue.first, answers .. ";") }
