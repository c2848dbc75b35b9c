-- events/dead: a page of the dead obligations of a subscription, the latest first
-- FLAGS  allow-oom
-- KEYS   root: ev body gens retiring roster broken leased:* parked:* lease:* dead:* error:* ob:*
-- ARGV   now slot number, name, generation, limit, cursor
-- REPLY  next cursor or "", ids, deaths, outcomes, errors, bodies, what is broken about each
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local number = require("lib.number")
local queue = require("lib.queue")
local listing = require("lib.listing")
local refuse = require("lib.refuse")
local columns = require("lib.events.columns")
local event = require("lib.events.event")
local generation = require("lib.events.generation")
local resolve = require("lib.events.resolve")

local refusal = queue.open(columns.reading, columns.settings)
if refusal then return refusal end

local nothing = { "", {}, {}, {}, {}, {}, {} }
local name, g = ARGV[queue.first], ARGV[queue.first + 1]
local facts, gen = generation.active(g) and generation.facts(g), generation.of(g)
if not facts or facts.name ~= name then return nothing end
local key, found, wanted = generation.prove(gen, resolve.columns)
if key then return refuse.wrong_type(key, found, wanted) end
if not gen.here.dead then return nothing end

local ids, places, more = listing.zset(gen.key.dead, ARGV[queue.first + 3], tonumber(ARGV[queue.first + 2]))
if #ids == 0 then return nothing end
local cursor = more and places[#places] or ""
local retention = tonumber(queue.root.dead_retention)
local oldest = retention and queue.ms - retention or -1
local kept, deaths, rows, broken = {}, {}, {}, {}
event.load(ids)
for i = 1, #ids do
  local at = tonumber(string.match(places[i], "^[^|]+"))
  if at > oldest then
    local each = event.get(ids[i])
    local n = #kept + 1
    kept[n], deaths[n] = ids[i], number.text(at)
    rows[n] = each and event.sound(each) and event.row(each, g) or false
    broken[n] = not each and "it has no header" or each.damaged or false
  end
end
if #kept == 0 then return { cursor, {}, {}, {}, {}, {}, {} } end
local reasons = queue.here.broken and redis.call("HMGET", queue.key.broken, unpack(kept)) or {}
for i = 1, #kept do broken[i] = reasons[i] or broken[i] end
return { cursor, kept, deaths, rows, redis.call("HMGET", gen.key.error, unpack(kept)),
  redis.call("HMGET", queue.key.body, unpack(kept)), broken }
