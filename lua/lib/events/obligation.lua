-- obligation: finds a dead obligation that operators can still do something about
local refuse = require("lib.refuse")
local event = require("lib.events.event")
local generation = require("lib.events.generation")
local resolve = require("lib.events.resolve")
local standing = require("lib.events.standing")

local M = {}

-- Arguments: name, generation, id. Returns a refusal, or the generation's keys, the event and the outcome; the event is
-- nil unless the obligation is dead, or retried, and holds the event.
function M.dead(at)
  local name, g, id = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local facts, gen = generation.active(g) and generation.facts(g), generation.of(g)
  local key, found, wanted = generation.prove(gen, resolve.columns)
  if key then return refuse.wrong_type(key, found, wanted) end
  local each = event.get(id)
  if not facts or facts.name ~= name or not each then return nil, gen end
  if not event.sound(each) then
    return refuse.word("CORRUPT", "event " .. id .. " of " .. KEYS[1] .. " is damaged: " .. each.damaged)
  end
  local row = event.row(each, g)
  if not standing.row_holds(row, g) then return nil, gen end
  return nil, gen, each, row
end

return M
