-- standing: what an event is at this time, whatever a sweep has seen of it; decides, and writes nothing
--
-- A generation removed strictly before the deadline waives what it owes as of its removal. When nobody owes any more
-- the event is completed as of the last outcome, else past its deadline expired as of that.
local queue = require("lib.queue")
local event = require("lib.events.event")
local generation = require("lib.events.generation")

local M = {}

local MOST = 64             -- removed generations that one call goes by; unsubscribing keeps them at far fewer
local removed

-- The removed generations whose obligations are not all waived yet, as facts, by removal.
function M.retiring()
  if removed then return removed end
  removed = {}
  if not queue.here.retiring then return removed end
  local gs = redis.call("ZRANGE", queue.key.retiring, 0, MOST - 1)
  generation.load(gs)
  for i = 1, #gs do
    local facts = generation.facts(gs[i])
    if facts and facts.removed then removed[#removed + 1] = facts end
  end
  return removed
end

-- The facts of removed generations that waive what they owe of an active event, and have not done so yet.
function M.waivers(each)
  local list = {}
  for _, facts in ipairs(M.retiring()) do
    if facts.born < each.seq and each.seq <= facts.stop and (not each.expires or facts.removed < each.expires)
      and not event.row(each, facts.g) then
      list[#list + 1] = facts
    end
  end
  return list
end

-- Letter, settlement and waivers of an event: a active, c completed, x expired.
function M.of(each)
  if each.status ~= "a" then return string.lower(each.status), each.settled, {} end
  local waivers, last = M.waivers(each), each.last
  for i = 1, #waivers do last = math.max(last, waivers[i].removed) end
  if each.owed - #waivers <= 0 then return "c", last, waivers end
  if each.expires and each.expires <= queue.ms then return "x", each.expires, waivers end
  return "a", nil, waivers
end

-- Whether the archive keeps an event that settled at `settled`.
function M.archived(each, settled)
  local goes_there = each.status == "c" or each.status == "x"
    or (each.status == "a" and queue.root.on_completion == "archive")
  local retention = tonumber(queue.root.archive_retention)
  return goes_there and (not retention or settled + retention > queue.ms)
end

-- Whether this outcome of generation `g` holds the record of its event.
function M.row_holds(row, g)
  if not row then return false end
  local letter, at = event.outcome(row)
  if letter == "r" then return generation.active(g) end
  local retention = tonumber(queue.root.dead_retention)
  return letter == "d" and generation.active(g) and (not retention or at + retention > queue.ms)
end

-- Whether dead obligations hold the record.
function M.held(each)
  if each.dead == 0 then return false end
  if #M.retiring() == 0 and not tonumber(queue.root.dead_retention) then return true end
  for g, row in pairs(event.rows(each)) do
    if M.row_holds(row, g) then return true end
  end
  return false
end

-- Whether the record is there for a caller. Also letter, settlement and waivers.
function M.present(each)
  local letter, settled, waivers = M.of(each)
  local there = letter == "a" or M.archived(each, settled) or M.held(each)
  return there, letter, settled, waivers
end

return M
