-- events/sweep: one category of a bounded sweep, or events by their ids that are in the way of an emission
-- FLAGS  allow-oom
-- KEYS   root: ev body log deadlines archives gens cursor retiring due mort roster refs seen was broken idle subs
--        dropped leased:* parked:* lease:* dead:* error:* ob:* bell:*
-- ARGV   now slot number, category, limit; or "ids" and the ids
-- REPLY  how many, and 1 when more is due
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  active -> completed; active -> expired; pending -> waived; pending -> dead; completed -> removed;
--        expired -> removed
local number = require("lib.number")
local queue = require("lib.queue")
local columns = require("lib.events.columns")
local resolve = require("lib.events.resolve")
local upkeep = require("lib.events.upkeep")

local refusal = queue.open(columns.removing, columns.settings)
if refusal then return refusal end
queue.settings({ "max_attempts", "max_backlog", "idle_after", "drop_scan", "expiring" })

if queue.answer then
  local count, more = string.match(queue.answer, "^(%d+),(%d)$")
  return { tonumber(count), tonumber(more) }
end

local category = ARGV[queue.first]
local count, more
if category == "ids" then
  local ids = {}
  for i = queue.first + 1, #ARGV do ids[#ids + 1] = ARGV[i] end
  count, more = upkeep.bring_up(ids), false
else
  count, more = upkeep[category](tonumber(ARGV[queue.first + 1]))
end
if count > 0 or more then
  queue.remember(number.text(count) .. "," .. (more and "1" or "0"))
end
resolve.commit()
return { count, more and 1 or 0 }
