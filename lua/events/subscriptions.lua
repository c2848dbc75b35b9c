-- events/subscriptions: how far some subscriptions are
-- FLAGS  allow-oom
-- KEYS   root: ev log deadlines gens cursor dropped leased:* parked:* lease:* dead:* error:*
-- ARGV   now slot number, generations
-- REPLY  per generation: name, lag, in flight, created of the oldest pending or "", dead, dropped; name and reason of
--        one whose keys hold something else; false of a removed one
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local columns = require("lib.events.columns")
local progress = require("lib.events.progress")

local refusal = queue.open(columns.counting, { "dead_retention" })
if refusal then return refusal end
local rows = {}
for i = queue.first, #ARGV do rows[#rows + 1] = progress.of(ARGV[i]) end
return rows
