-- events/archived: ids of archived events, in the order of their settlement
-- FLAGS  allow-oom
-- KEYS   root: ev log deadlines archives gens cursor retiring leased:* parked:* ob:*
-- ARGV   now slot number, offset, limit
-- REPLY  ids
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local number = require("lib.number")
local queue = require("lib.queue")
local listing = require("lib.listing")
local columns = require("lib.events.columns")
local unseen = require("lib.events.unseen")

local refusal = queue.open(columns.listing, columns.settings)
if refusal then return refusal end

local retention = tonumber(queue.root.archive_retention)
local past = retention and redis.call("ZCOUNT", queue.key.archives, "-inf", number.text(queue.ms - retention)) or 0
local from, limit = past + tonumber(ARGV[queue.first]), tonumber(ARGV[queue.first + 1])

-- the place of each that no sweep has brought into the archive yet
local places, before = {}, 0
for i, each in ipairs(unseen.archived()) do
  local place = listing.rank(queue.key.archives, number.text(each.settled), each.id) + i - 1
  places[place] = each.id
  if place < from then before = before + 1 end
end
local stored = redis.call("ZRANGE", queue.key.archives, number.text(from - before),
  number.text(from - before + limit - 1))
local ids, taken = {}, 0
for place = from, from + limit - 1 do
  local id = places[place]
  if not id then
    taken = taken + 1
    id = stored[taken]
  end
  if not id then break end
  ids[#ids + 1] = id
end
return ids
