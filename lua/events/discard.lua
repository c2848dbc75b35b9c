-- events/discard: gives up a dead obligation, retried or not; its event may go
-- FLAGS  allow-oom
-- KEYS   root: ev body log deadlines archives gens cursor retiring due mort roster refs seen was broken idle
--        leased:* parked:* lease:* dead:* error:* ob:* bell:*
-- ARGV   now slot number, name, generation, id
-- REPLY  1, or 0 when it is not dead
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  completed -> removed; expired -> removed
local number = require("lib.number")
local queue = require("lib.queue")
local columns = require("lib.events.columns")
local event = require("lib.events.event")
local hand = require("lib.events.hand")
local obligation = require("lib.events.obligation")
local resolve = require("lib.events.resolve")

local refusal = queue.open(columns.resolving, columns.settings)
if refusal then return refusal end
if queue.answer then return queue.answer end
local wrong, gen, each, row = obligation.dead(queue.first)
if wrong then return wrong end
if not each then return "0" end

local letter, at, attempt, token = event.outcome(row)
if letter == "r" then
  -- the token that it died under goes on being answered, unless something newer settled it since
  local held = hand.get(gen, each.id)
  if not held or held.last ~= "d" .. token then token = "" end
  hand.out(gen, each.id)
end
event.set_row(each, gen.g, "x," .. number.text(at) .. "," .. number.text(attempt) .. "," .. token)
resolve.unlist(gen, each.id)
resolve.unhold(each)
queue.remember("1")
resolve.commit()
return "1"
