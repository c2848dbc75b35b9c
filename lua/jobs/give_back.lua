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
local pack = require("lib.pack")
local number = require("lib.number")
local settle = require("lib.settle")

-- The releases of what the take remembered; an exchange put its answers and ";" in front.
local function releases()
  local taken = queue.answer or ""
  taken = string.match(taken, "^[%w,!]*;(.*)$") or taken
  local first, start = string.match(taken, "^(%d+)|()")
  local ids = first and pack.unlist(taken, start) or {}
  local whats, tokens = {}, {}
  for i = 1, #ids do
    whats[i], tokens[i] = "r", number.text(first + i - 1) .. "-" .. ARGV[queue.first]
  end
  return { whats = whats, ids = ids, tokens = tokens, data = {} }
end

return queue.run(function()
  local refusal = queue.open({}, { "first", "paused" })
  if refusal then return refusal end
  local given = releases()
  queue.refuse_next()   -- a late copy of the take
  settle.run(given)
  plan.commit()
  return #given.ids
end)
