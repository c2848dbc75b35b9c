-- resolve: the one door through which an obligation gets its outcome, and through which an event settles and goes
--
-- Changes are planned; `commit` writes them.
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local aside = lazy("lib.aside")
local event = require("lib.events.event")
local generation = require("lib.events.generation")
local hand = require("lib.events.hand")
local roster = require("lib.events.roster")
local ring = require("lib.events.ring")
local standing = lazy("lib.events.standing")

local M = { columns = { "leased", "parked", "lease", "dead", "error", seldom = { "parked", "dead", "error" } } }

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

-- Takes an expired event out of one hand. When its record stays, a token that was live at the deadline is kept.
local function let_go(each, g, stays)
  local gen = M.keys_of(g, { "leased", "parked", "lease" })
  local held, stop = nil, nil
  if gen then held, stop = hand.get(gen, each.id) end
  if stays and held and held.mark == "y" and (not stop or stop == each.expires) then
    event.set_row(each, g, "p," .. held.token)
  end
  if held or stop then hand.out(gen, each.id) end
end

-- Takes an expired event out of the hands of its recipients: `limit` of them, from the `from`-th on. Returns where to
-- go on, or nil at the end, and how many recipients it went through.
function M.expire(each, from, limit)
  local members = roster.members(each.version)
  local last = math.min(#members, from + limit - 1)
  if last < from then return from <= #members and from or nil, 0 end
  local cursors, stays = redis.call("HMGET", queue.key.cursor, unpack(members, from, last)), M.stays(each, each.expires)
  event.load_rows(each, members, from, last)
  for i = from, last do
    local reached = generation.cursor(cursors[i - from + 1] or "")
    if reached and reached >= each.seq and not event.row(each, members[i]) then let_go(each, members[i], stays) end
  end
  return last < #members and last + 1 or nil, last - from + 1
end

-- Whether the record of an active event stays when it settles at `at`.
function M.stays(each, at)
  return standing.archived(each, at) or each.dead > 0
end

-- Settles an active event as completed or expired, as of `at`. One that expired is in nobody's hands any more.
function M.settle(each, letter, at)
  plan.add("ZREM", queue.key.log, each.id)
  if each.expires then plan.add("ZREM", queue.key.deadlines, each.id) end
  local archived, stays = standing.archived(each, at), M.stays(each, at)
  each.settled = at
  each.status = archived and letter or string.upper(letter)
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

-- The listing of a dead obligation ends; a retried one had left it before.
function M.unlist(gen, id)
  local listed = redis.call("ZSCORE", gen.key.dead, id) and 1 or 0
  plan.add("ZREM", gen.key.dead, id)
  plan.add("HDEL", gen.key.error, id)
  if redis.call("ZCARD", gen.key.dead) <= listed then plan.add("ZREM", queue.key.mort, gen.g) end
end

function M.commit()
  event.done()
  roster.done()
  plan.commit()
  ring.done()
end

return M
