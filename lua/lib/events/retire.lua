-- retire: bounded waiving of what removed generations owe, as of their removal
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local event = require("lib.events.event")
local generation = require("lib.events.generation")
local hand = require("lib.events.hand")
local resolve = require("lib.events.resolve")
local standing = require("lib.events.standing")
local contain = lazy("lib.events.contain")

local M = {}

-- A key that holds something else goes; what it should have told is found again in the log.
local function mend(facts)
  while true do
    local gen = generation.of(facts.g)
    local key = generation.prove(gen, resolve.columns)
    if not key then return gen end
    redis.call("UNLINK", key)
    redis.call("HSET", queue.key.cursor, facts.g, generation.cursor_text(facts.born, 0))
  end
end

local function waive(facts, gen, id, in_hand)
  local each = event.get(id)
  local row = each and event.sound(each) and event.row(each, facts.g)
  if not each then
    if not in_hand then contain.orphan(id) end
  elseif each.damaged then
    contain.event(each, each.damaged)
  elseif row and string.sub(row, 1, 1) == "r" then
    resolve.waived(each, facts.g, nil, facts.removed)
  elseif not row and each.status == "a" and (not each.expires or facts.removed < each.expires) then
    resolve.waived(each, facts.g, nil, facts.removed)
  end
  if in_hand then hand.out(gen, id) end
end

local function in_hand(facts, gen, index, limit)
  if limit <= 0 or not gen.here[index] then return 0 end
  local ids = redis.call("ZRANGE", gen.key[index], 0, limit - 1)
  if #ids == 0 then return 0 end
  event.load(ids)
  hand.load(gen, ids)
  for i = 1, #ids do waive(facts, gen, ids[i], true) end
  return #ids
end

local function not_taken(facts, gen, limit)
  local from, taken = generation.cursor(redis.call("HGET", queue.key.cursor, facts.g) or "")
  from = from or facts.born
  if limit <= 0 or from >= facts.stop then return 0 end
  local found = redis.call("ZRANGE", queue.key.log, "(" .. number.text(from), number.text(facts.stop),
    "BYSCORE", "LIMIT", 0, limit, "WITHSCORES")
  local ids = {}
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  event.load(ids)
  for i = 1, #ids do waive(facts, gen, ids[i], false) end
  local reached = #ids < limit and facts.stop or tonumber(found[#found])
  plan.add("HSET", queue.key.cursor, facts.g, generation.cursor_text(reached, taken or 0))
  return #ids
end

local function dead(facts, gen, limit)
  if limit <= 0 or not gen.here.dead then return 0 end
  local ids = redis.call("ZRANGE", gen.key.dead, 0, limit - 1)
  event.load(ids)
  for i = 1, #ids do
    local each = event.get(ids[i])
    local row = each and event.sound(each) and event.row(each, facts.g)
    if row and string.sub(row, 1, 1) == "d" then
      event.set_row(each, facts.g, "x" .. string.sub(row, 2))
      resolve.unhold(each)
    end
    resolve.unlist(gen, ids[i])
  end
  return #ids
end

local function forget(facts, gen)
  for _, column in ipairs(resolve.columns) do
    if gen.here[column] then plan.unlink(gen.key[column]) end
  end
  for _, column in ipairs({ "gens", "cursor", "dropped" }) do plan.add("HDEL", queue.key[column], facts.g) end
  for _, index in ipairs({ "retiring", "due", "mort" }) do plan.add("ZREM", queue.key[index], facts.g) end
  plan.add("SREM", queue.key.idle, facts.g)
end

-- Waives up to `limit` obligations; returns how many, and whether more is left.
function M.run(limit)
  local done = 0
  for _, facts in ipairs(standing.retiring()) do
    local gen = mend(facts)
    done = done + in_hand(facts, gen, "leased", limit - done)
    done = done + in_hand(facts, gen, "parked", limit - done)
    done = done + not_taken(facts, gen, limit - done)
    done = done + dead(facts, gen, limit - done)
    if done >= limit then
      resolve.commit()
      return done, true
    end
    forget(facts, gen)
    resolve.commit()
  end
  return done, false
end

return M
