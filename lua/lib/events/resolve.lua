-- resolve: the one door through which an obligation gets its outcome, and through which an event settles and goes
--
-- Changes are planned; `commit` writes them.
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local aside = require("lib.aside")
local event = require("lib.events.event")
local generation = require("lib.events.generation")
local hand = require("lib.events.hand")
local roster = require("lib.events.roster")
local ring = require("lib.events.ring")
local standing = require("lib.events.standing")

local M = { columns = { "leased", "parked", "lease", "dead", "error" } }

local text = number.text

-- The keys of `g`, or nil when one holds something else; that is noted, and nobody else is held up by it.
function M.keys_of(g, names)
  local gen = generation.of(g)
  local key, found, wanted = generation.prove(gen, names or M.columns)
  if not key then return gen end
  aside.set(key, "it holds a " .. found .. " where a " .. wanted .. " belongs")
end

-- Notes in an index of generations that `g` is due at `at`, if not earlier.
function M.earliest(index, g, at)
  local list = plan.of("ZADD", queue.key[index])
  if #list == 0 then list[1] = "LT" end
  list[#list + 1] = text(at)
  list[#list + 1] = g
end

local function purge(each)
  if each.status == "c" or each.status == "x" then plan.add("ZREM", queue.key.archives, each.id) end
  if each.settled + tonumber(queue.root.dedup) > queue.ms then
    plan.add("ZADD", queue.key.seen, text(each.settled), each.id)
    plan.add("HSET", queue.key.was, each.id, text(each.created) .. "," .. (each.expires and text(each.expires) or "")
      .. "," .. string.lower(each.status))
  end
  if queue.here.broken then plan.add("HDEL", queue.key.broken, each.id) end
  roster.release(each.version)
  event.remove(each)
end
M.purge = purge

-- Takes an expired event out of all hands. When its record stays, a token that was live at the deadline is kept.
local function out_of_hands(each, stays)
  local members, rows = roster.members(each.version), event.rows(each)
  local cursors = #members > 0 and redis.call("HMGET", queue.key.cursor, unpack(members)) or {}
  for i = 1, #members do
    local g = members[i]
    local reached = generation.cursor(cursors[i] or "")
    local gen = reached and reached >= each.seq and not rows[g] and M.keys_of(g, { "leased", "parked", "lease" })
    if gen then
      local held, stop = hand.get(gen, each.id)
      if stays and held and held.mark == "y" and (not stop or stop == each.expires) then
        event.set_row(each, g, "p," .. held.token)
      end
      if held or stop then hand.out(gen, each.id) end
    end
  end
end

-- Settles an active event as completed or expired, as of `at`.
function M.settle(each, letter, at)
  plan.add("ZREM", queue.key.log, each.id)
  if each.expires then plan.add("ZREM", queue.key.deadlines, each.id) end
  each.settled = at
  each.status = queue.root.on_completion == "archive" and letter or string.upper(letter)
  local archived = standing.archived(each, at)
  if not archived then each.status = string.upper(letter) end
  local stays = archived or each.dead > 0
  if letter == "x" then out_of_hands(each, stays) end
  event.touch(each)
  if archived then plan.add("ZADD", queue.key.archives, text(at), each.id) end
  if not stays then purge(each) end
end

-- One obligation less is owed, as of `at`.
local function counted(each, at)
  each.owed = each.owed - 1
  each.last = math.max(each.last, at)
  if each.owed <= 0 then M.settle(each, "c", each.last) end
end

-- A dead obligation no longer holds the record.
function M.unhold(each)
  each.dead = math.max(each.dead - 1, 0)
  event.touch(each)
  if each.dead == 0 and (each.status == "C" or each.status == "X") then purge(each) end
end

function M.acknowledged(each, gen, held)
  hand.out(gen, each.id)
  event.set_row(each, gen.g, "a," .. queue.now .. "," .. held.token)
  if held.redriven then M.unhold(each) else counted(each, queue.ms) end
end

-- `gen` is nil when the keys of the generation are of no use.
function M.waived(each, g, gen, at)
  local row = event.row(each, g)
  if gen then hand.out(gen, each.id) end
  event.set_row(each, g, "w," .. text(at))
  if row then M.unhold(each) else counted(each, at) end
end

-- The obligation is dead as of `at`: listed with the reason, and the record stays for it. A retried one is so again.
function M.dead(each, gen, at, attempt, token, reason)
  local again = event.row(each, gen.g)
  hand.out(gen, each.id)
  event.set_row(each, gen.g, "d," .. text(at) .. "," .. text(attempt) .. "," .. token)
  plan.add("ZADD", gen.key.dead, text(at), each.id)
  plan.add("HSET", gen.key.error, each.id, reason)
  M.earliest("mort", gen.g, at)
  if again then return end
  each.dead = each.dead + 1
  counted(each, at)
end

-- The listing of a dead obligation ends.
function M.unlist(gen, id)
  plan.add("ZREM", gen.key.dead, id)
  plan.add("HDEL", gen.key.error, id)
end

function M.commit()
  event.done()
  roster.done()
  plan.commit()
  ring.done()
end

return M
