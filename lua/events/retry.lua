-- events/retry: lets a subscription take a dead obligation again, with all its attempts
-- FLAGS  allow-oom
-- KEYS   root: ev body log deadlines archives gens cursor retiring due mort roster refs seen was broken idle
--        leased:* parked:* lease:* dead:* error:* ob:* bell:*
-- ARGV   now slot number, name, generation, id
-- REPLY  1, or 0 when it is not listed as dead
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  dead -> pending
local queue = require("lib.queue")
local columns = require("lib.events.columns")
local event = require("lib.events.event")
local hand = require("lib.events.hand")
local obligation = require("lib.events.obligation")
local resolve = require("lib.events.resolve")
local ring = require("lib.events.ring")

local refusal = queue.open(columns.resolving, columns.settings)
if refusal then return refusal end
if queue.answer then return queue.answer end
local wrong, gen, each, row = obligation.dead(queue.first)
if wrong then return wrong end
if not each or string.sub(row, 1, 1) ~= "d" then return "0" end

event.set_row(each, gen.g, "r" .. string.sub(row, 2))
resolve.unlist(gen, each.id)
hand.redrive(gen, each.id, queue.ms, (select(4, event.outcome(row))))
ring.due(gen.g, queue.ms)
queue.remember("1")
resolve.commit()
return "1"
