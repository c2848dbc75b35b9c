-- jobs/exchange: settles a batch and takes the next one
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history progress waiters group:* w:*
-- ARGV   now slot number, nonce floor limit lease starts worker, then per settlement: what id token [data]
-- REPLY  answer words of the settlements, the reply of a take
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  leased -> completed; leased -> scheduled; leased -> ready; leased -> dead; leased -> cancelled;
--        leased -> quarantined; ready -> leased; scheduled -> ready
local queue = require("lib.queue")
local wake = require("lib.wake")
local settle = require("lib.settle")
local claim = require("lib.claim")

local fields = { "keep", unpack(claim.fields) }

-- the slot holds: answers ";" what the take remembers
local function remember(answers)
  queue.remember(answers .. ";")
end

local function again()
  local answers, taken = string.match(queue.answer, "^([^;]*);(.*)$")
  local reply = taken ~= "" and claim.again(queue.first, taken)
  return { answers, reply or claim.run(queue.first, answers .. ";") }
end

return queue.run(function()
  local refusal = queue.open({}, fields)
  if refusal then return refusal end
  if queue.answer then return again() end
  local takes = claim.takes(queue.first)
  if takes then claim.prove() end
  wake.hush(takes)
  -- what a take adds to the slot, it writes there together with the answers
  local answers = settle.run(settle.arguments(queue.first + claim.width), not takes and remember)
  return { answers, claim.run(queue.first, answers .. ";") }
end)
