-- contain: a damaged event is taken out of everybody's way: what is owed of it ends dead, with the reason
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local detail = lazy("lib.detail")
local aside = require("lib.aside")
local event = require("lib.events.event")
local generation = require("lib.events.generation")
local hand = require("lib.events.hand")
local roster = require("lib.events.roster")
local resolve = require("lib.events.resolve")

local M = {}

local text = number.text

-- Who may still owe an event of which the sequence alone is left.
local function owing(seq)
  local list = {}
  for _, facts in ipairs(generation.all()) do
    if facts.born < seq and (not facts.stop or seq <= facts.stop) then list[#list + 1] = facts.g end
  end
  return list
end

local function without_outcome(each, gs)
  local rows, list = event.rows(each), {}
  for i = 1, #gs do
    if not rows[gs[i]] then list[#list + 1] = gs[i] end
  end
  return list
end

local function holding(each)
  local count = 0
  for _, row in pairs(event.rows(each)) do
    local letter = row and string.sub(row, 1, 1)
    if letter == "d" or letter == "r" then count = count + 1 end
  end
  return count
end

-- What the indexes still tell of an event whose header is damaged, or false.
local function rebuilt(each)
  local seq = tonumber(redis.call("ZSCORE", queue.key.log, each.id) or nil)
  if not seq then return false end
  local expires = tonumber(redis.call("ZSCORE", queue.key.deadlines, each.id) or nil)
  local created = math.floor(seq / 1000)
  event.sound(each)
  event.rebuild(each, { status = "a", last = created, seq = seq, created = created, expires = expires, version = "",
    size = 0, fixed = text(seq) .. "," .. text(created) .. "," .. (expires and text(expires) or "") .. ",,0" })
  each.dead = holding(each)
  return owing(seq)
end

-- Ends what is owed of the event. A damaged header loses its raw text to a new one; the reason stays in `broken`.
function M.event(each, reason)
  aside.set(each.id, reason)
  local gs
  if each.seq then
    event.sound(each)
    event.rebuild(each, {})
    gs = without_outcome(each, roster.members(each.version))
  else
    gs = rebuilt(each)
    if not gs then
      plan.add("ZREM", queue.key.archives, each.id)
      return
    end
    gs = without_outcome(each, gs)
  end
  each.owed = #gs
  if #gs == 0 then resolve.settle(each, "c", each.last) end
  local why = detail.text("DamagedEvent", reason)
  for i = 1, #gs do
    local gen, facts = resolve.keys_of(gs[i]), generation.facts(gs[i])
    if gen and facts and not facts.removed then
      local held = hand.get(gen, each.id)
      resolve.dead(each, gen, queue.ms, held and held.attempt or 0, "", why)
    else
      resolve.waived(each, gs[i], gen, facts and facts.removed or queue.ms)
    end
  end
end

-- An index names an event that has no header.
function M.orphan(id)
  aside.set(id, "it has no header")
  for _, index in ipairs({ "log", "deadlines", "archives" }) do plan.add("ZREM", queue.key[index], id) end
end

return M
