-- upkeep: what a sweep does to an event queue, one category a call, each bounded
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local event = require("lib.events.event")
local generation = require("lib.events.generation")
local resolve = require("lib.events.resolve")
local standing = require("lib.events.standing")
local contain = lazy("lib.events.contain")
local lapse = lazy("lib.events.lapse")
local retire = lazy("lib.events.retire")
local drop = lazy("lib.events.drop")

local M = {}

local text = number.text
local RECIPIENTS = 100      -- out of whose hands one call takes expired events

local function due_of(index, cutoff, limit)
  if not queue.here[index] then return {} end
  return redis.call("ZRANGE", queue.key[index], "-inf", text(cutoff), "BYSCORE", "LIMIT", 0, limit)
end

-- Materialises what an event is by now: waivers, and its settlement. An expired one is first taken out of all hands,
-- `limit` of them in one call; root field expiring says where the next one goes on. Returns how many recipients it went
-- through, and whether it is done.
local function brought_up(each, limit)
  local letter, settled, waivers = standing.of(each)
  for i = 1, #waivers do
    if not each.settled then resolve.waived(each, waivers[i].g, resolve.keys_of(waivers[i].g), waivers[i].removed) end
  end
  if letter == "a" or each.settled then return 0, true end
  if letter == "c" then
    resolve.settle(each, letter, settled)
    return 0, true
  end
  local place, id = string.match(queue.root.expiring or "", "^(%d+):(.*)$")
  local on, count = resolve.expire(each, id == each.id and tonumber(place) or 1, limit)
  if on then
    queue.root.expiring = text(on) .. ":" .. each.id
    plan.add("HSET", KEYS[1], "expiring", queue.root.expiring)
    return count, false
  end
  resolve.settle(each, letter, settled)
  return count, true
end

-- Brings up to date what is past its deadline. Needs the field expiring.
function M.deadlines(limit)
  local ids, gone_through = due_of("deadlines", queue.ms, limit), 0
  event.load(ids)
  for i = 1, #ids do
    local each = event.get(ids[i])
    if not each then
      contain.orphan(ids[i])
    elseif not event.sound(each) then
      contain.event(each, each.damaged)
    else
      local count, done = brought_up(each, RECIPIENTS - gone_through)
      gone_through = gone_through + count
      if not done then return i - 1, true end
    end
  end
  return #ids, #ids == limit
end

-- Lapsed leases of the generations that may have some.
function M.lapsed(limit)
  local gs, count = due_of("due", queue.ms, limit), 0
  for i = 1, #gs do
    local g = gs[i]
    local gen = generation.active(g) and resolve.keys_of(g)
    if gen then count = count + lapse.run(gen, limit - count) end
    resolve.commit()
    local head = gen and gen.here.leased and redis.call("ZRANGE", gen.key.leased, 0, 0, "WITHSCORES") or {}
    if head[2] then
      redis.call("ZADD", queue.key.due, head[2], g)
    else
      redis.call("ZREM", queue.key.due, g)
    end
    if count >= limit then return count, true end
  end
  return count, #gs == limit
end

-- Archived events past their retention: gone, or out of the archive when a dead obligation holds them.
function M.archives(limit)
  local retention = tonumber(queue.root.archive_retention)
  if not retention then return 0, false end
  local ids = due_of("archives", queue.ms - retention, limit)
  event.load(ids)
  for i = 1, #ids do
    local each = event.get(ids[i])
    if not each then
      contain.orphan(ids[i])
    elseif each.damaged then
      contain.event(each, each.damaged)
    elseif each.dead > 0 then
      plan.add("ZREM", queue.key.archives, each.id)
      each.status = string.upper(each.status)
      event.touch(each)
    else
      event.sound(each)
      resolve.purge(each)
    end
  end
  return #ids, #ids == limit
end

-- Ids whose memory has passed.
function M.memory(limit)
  local ids = due_of("seen", queue.ms - tonumber(queue.root.dedup), limit)
  plan.append("ZREM", queue.key.seen, ids)
  plan.append("HDEL", queue.key.was, ids)
  return #ids, #ids == limit
end

function M.removals(limit)
  return retire.run(limit)
end

local function expired_dead(gen, retention, limit)
  local ids = redis.call("ZRANGE", gen.key.dead, "-inf", text(queue.ms - retention), "BYSCORE", "LIMIT", 0, limit)
  event.load(ids)
  for i = 1, #ids do
    local each = event.get(ids[i])
    local row = each and event.sound(each) and event.row(each, gen.g)
    if row and string.sub(row, 1, 1) == "d" then
      event.set_row(each, gen.g, "x" .. string.sub(row, 2))
      resolve.unhold(each)
    end
    resolve.unlist(gen, ids[i])
  end
  return #ids
end

-- Dead obligations past their retention: they no longer hold their events.
function M.dead(limit)
  local retention = tonumber(queue.root.dead_retention)
  if not retention then return 0, false end
  local gs, count = due_of("mort", queue.ms - retention, limit), 0
  for i = 1, #gs do
    local gen = generation.active(gs[i]) and resolve.keys_of(gs[i])
    if gen then count = count + expired_dead(gen, retention, limit - count) end
    resolve.commit()
    local head = gen and redis.call("ZRANGE", gen.key.dead, 0, 0, "WITHSCORES") or {}
    if head[2] then
      redis.call("ZADD", queue.key.mort, head[2], gs[i])
    else
      redis.call("ZREM", queue.key.mort, gs[i])
    end
    if count >= limit then return count, true end
  end
  return count, #gs == limit
end

function M.dropped(limit)
  return drop.run(limit)
end

-- Settles and removes what the given events are by now; returns how many it is done with. Needs the field expiring.
function M.bring_up(ids)
  local gone_through = 0
  event.load(ids)
  for i = 1, #ids do
    local each = event.get(ids[i])
    if each and not event.sound(each) then
      contain.event(each, each.damaged)
    elseif each then
      local count, done = M.clear(each, RECIPIENTS - gone_through)
      gone_through = gone_through + count
      if not done then return i - 1 end
    end
    resolve.commit()
  end
  return #ids
end

-- Ends the holds of dead obligations that hold no longer.
local function release(each)
  for g, row in pairs(event.rows(each)) do
    local letter = row and string.sub(row, 1, 1)
    if (letter == "d" or letter == "r") and not each.gone and not standing.row_holds(row, g) then
      local gen = resolve.keys_of(g)
      if letter == "r" then
        local facts = generation.facts(g)
        resolve.waived(each, g, gen, facts and facts.removed or queue.ms)
      else
        event.set_row(each, g, "x" .. string.sub(row, 2))
        if gen then resolve.unlist(gen, each.id) end
        resolve.unhold(each)
      end
    end
  end
end

-- An event that is settled, and there for nobody, goes. Returns as `brought_up`.
function M.clear(each, limit)
  local there, letter = standing.present(each)
  if there or letter == "a" then return 0, true end
  local count, done = brought_up(each, limit)
  if not done then return count, false end
  if not each.gone and each.dead > 0 then release(each) end
  if not each.gone and each.dead == 0 then resolve.purge(each) end
  return count, true
end

return M
