-- lapse: leases of one generation that ran out
local queue = require("lib.queue")
local detail = lazy("lib.detail")
local event = require("lib.events.event")
local hand = require("lib.events.hand")
local resolve = require("lib.events.resolve")
local contain = lazy("lib.events.contain")

local M = {}

local function past_deadline(each)
  return each.status ~= "a" or (each.expires and each.expires <= queue.ms)
end

local function marked(held)
  return { token = held.token, attempt = held.attempt, mark = "l", due = "", redriven = held.redriven, last = "" }
end

local function recover(gen, id, stop)
  local each, held = event.get(id), hand.get(gen, id)
  if not each or not held then
    hand.out(gen, id)
  elseif not event.sound(each) then
    contain.event(each, each.damaged)
    hand.out(gen, id)
  elseif not held.redriven and past_deadline(each) then
    -- whether the token was live at the deadline is told by its mark, until the event is settled
    hand.unlease(gen, id, each.expires and stop < each.expires and marked(held) or nil)
  elseif queue.root.max_attempts ~= "" and held.attempt >= tonumber(queue.root.max_attempts) then
    resolve.dead(each, gen, stop, held.attempt, "",
      detail.text("LeaseLapsed", "the lease ran out before the event was settled"))
  else
    hand.park(gen, id, marked(held), stop)
  end
end

-- Recovers up to `limit` leases that ended at or before now; returns how many there were.
function M.run(gen, limit)
  if not gen.here.leased then return 0 end
  local found = redis.call("ZRANGE", gen.key.leased, "-inf", queue.now, "BYSCORE", "LIMIT", 0, limit, "WITHSCORES")
  if #found == 0 then return 0 end
  local ids = {}
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  event.load(ids)
  hand.load(gen, ids)
  for i = 1, #ids do recover(gen, ids[i], tonumber(found[i * 2])) end
  return #ids
end

return M
