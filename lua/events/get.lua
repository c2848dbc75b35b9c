-- events/get: an event as it stands, with what each recipient owes
-- FLAGS  allow-oom
-- KEYS   root: ev body gens retiring roster broken ob:*
-- ARGV   now slot number, id
-- REPLY  header, body, status, settled, parts of the roster, outcomes as generation and text in turns, waived
--        generations as generation and removal in turns; or an empty list
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local number = require("lib.number")
local queue = require("lib.queue")
local refuse = require("lib.refuse")
local columns = require("lib.events.columns")
local event = require("lib.events.event")
local generation = require("lib.events.generation")
local roster = require("lib.events.roster")
local standing = require("lib.events.standing")

local refusal = queue.open(columns.reading, columns.settings)
if refusal then return refusal end

local id = ARGV[queue.first]
local broken = queue.here.broken and redis.call("HGET", queue.key.broken, id)
local each = event.get(id)
if each and not broken and not event.sound(each) then broken = each.damaged end
local body = each and redis.call("HGET", queue.key.body, id)
if each and not broken and not body then broken = "its payload is gone" end
if broken then
  return refuse.word("CORRUPT", "event " .. id .. " of " .. KEYS[1] .. " is damaged: " .. broken)
end
if not each then return {} end
local there, status, settled, waivers = standing.present(each)
if not there then return {} end

local waived, rows = {}, {}
for i = 1, #waivers do
  waived[#waived + 1], waived[#waived + 2] = waivers[i].g, number.text(waivers[i].removed)
end
for g, row in pairs(event.rows(each)) do
  if row then
    rows[#rows + 1], rows[#rows + 2] = g, row
    -- a retried one whose generation was removed is waived
    local facts = string.sub(row, 1, 1) == "r" and generation.facts(g)
    if facts and facts.removed then
      waived[#waived + 1], waived[#waived + 2] = g, number.text(facts.removed)
    end
  end
end
return { each.raw, body, status, settled and number.text(settled) or "", roster.parts(each.version), rows, waived }
