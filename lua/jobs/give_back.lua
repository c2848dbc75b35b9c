-- jobs/give_back: undoes a take whose caller was interrupted before it saw the answer
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history progress waiters group:* w:*
-- ARGV   now slot number, nonce of that take
-- REPLY  number of leases given back
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  leased -> ready; leased -> cancelled
local queue = require("lib.queue")
local plan = require("lib.plan")
local move = require("lib.move")
local pack = require("lib.pack")
local number = require("lib.number")
local settle = require("lib.settle")

local refusal = queue.open(move.columns, move.fields)
if refusal then return refusal end

-- what the take remembered; an exchange put its answers and ";" in front
local taken = queue.answer or ""
taken = string.match(taken, "^[%w,!]*;(.*)$") or taken
local first, start = string.match(taken, "^(%d+)|()")
local ids = first and pack.unlist(taken, start) or {}
local items = {}
for i = 1, #ids do
  items[i] = { "r", ids[i], number.text(first + i - 1) .. "-" .. ARGV[queue.first], "", "" }
end
settle.run(items)
-- a late copy of the take finds a newer number, and is refused
plan.add("HSET", KEYS[1], queue.slot(), number.text(ARGV[3] + 1) .. "|" .. number.text(queue.ms + 60000) .. "|")
plan.commit()
return #ids
