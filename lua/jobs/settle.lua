-- jobs/settle: ends leases: ack, fail, release, quarantine
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history progress waiters group:* w:*
-- ARGV   now slot number, then per settlement: verb id token extra data
-- REPLY  one answer word per settlement, joined by commas
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  leased -> completed; leased -> scheduled; leased -> ready; leased -> dead; leased -> cancelled;
--        leased -> quarantined
local queue = require("lib.queue")
local plan = require("lib.plan")
local move = require("lib.move")
local settle = require("lib.settle")

local refusal = queue.open(move.columns, move.fields)
if refusal then return refusal end
if queue.answer then return queue.answer end
local answers = table.concat(settle.run(settle.arguments(queue.first)), ",")
plan.add("HSET", KEYS[1], queue.slot(), queue.remembered(answers))
plan.commit()
return answers
