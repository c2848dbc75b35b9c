-- unseen: events that are settled by now although no sweep has been there; as far as a bounded look finds them
local number = require("lib.number")
local queue = require("lib.queue")
local listing = require("lib.listing")
local event = require("lib.events.event")
local generation = require("lib.events.generation")
local standing = require("lib.events.standing")

local M = {}

local LOOK = 200            -- entries of an index that are looked at

local function add(list, seen, ids)
  event.load(ids)
  for i = 1, #ids do
    local each = not seen[ids[i]] and event.get(ids[i])
    seen[ids[i]] = true
    if each and event.sound(each) and each.status == "a" then
      local letter, settled = standing.of(each)
      if letter ~= "a" and standing.archived(each, settled) then
        list[#list + 1] = { id = each.id, settled = settled }
      end
    end
  end
end

-- What a removed generation still has to waive.
local function owed(facts)
  local gen = generation.of(facts.g)
  local ids = {}
  for _, index in ipairs({ "leased", "parked" }) do
    if not generation.prove(gen, { index }) and gen.here[index] then
      for _, id in ipairs(redis.call("ZRANGE", gen.key[index], 0, LOOK - 1)) do ids[#ids + 1] = id end
    end
  end
  local from = generation.cursor(redis.call("HGET", queue.key.cursor, facts.g) or "") or facts.born
  local ahead = redis.call("ZRANGE", queue.key.log, "(" .. number.text(from), number.text(facts.stop), "BYSCORE",
    "LIMIT", 0, LOOK)
  for i = 1, #ahead do ids[#ids + 1] = ahead[i] end
  return ids
end

local function earlier(a, b)
  if a.settled ~= b.settled then return a.settled < b.settled end
  return listing.before(a.id, b.id)
end

-- Events that belong into the archive, by settlement: { id, settled }.
function M.archived()
  local list, seen = {}, {}
  if queue.here.deadlines then
    add(list, seen, redis.call("ZRANGE", queue.key.deadlines, "-inf", queue.now, "BYSCORE", "LIMIT", 0, LOOK))
  end
  for _, facts in ipairs(standing.retiring()) do add(list, seen, owed(facts)) end
  table.sort(list, earlier)
  return list
end

return M
