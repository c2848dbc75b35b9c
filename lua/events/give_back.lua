-- events/give_back: undoes a take whose caller was interrupted before it saw the answer
-- FLAGS  allow-oom
-- KEYS   root: ev body log deadlines archives gens cursor retiring due mort roster refs seen was broken idle
--        leased:* parked:* lease:* dead:* error:* ob:* bell:*
-- ARGV   now slot number, name and generation, nonce of that take
-- REPLY  number of leases given back
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local pack = require("lib.pack")
local columns = require("lib.events.columns")
local generation = require("lib.events.generation")
local resolve = require("lib.events.resolve")
local ring = require("lib.events.ring")
local verdict = require("lib.events.verdict")

local refusal = queue.open(columns.resolving, columns.settings)
if refusal then return refusal end

-- what the take remembered; an exchange put its answers and ";" in front
local taken = queue.answer or ""
taken = string.match(taken, "^[^;|]*;(.*)$") or taken
local first, start = string.match(taken, "^(%d+)|()")
local ids = first and pack.unlist(taken, start) or {}
local g = ARGV[queue.first + 1]
local gen = generation.of(g)
if #ids > 0 and generation.active(g) and not generation.prove(gen, resolve.columns) then
  verdict.give_back({ gen = gen, active = true }, ids, first, ARGV[queue.first + 2])
end
-- it may have been rung for what it was to take
ring.due(g, queue.ms)
-- a late copy of the take
queue.refuse_next()
resolve.commit()
return #ids
