-- progress: how far a subscription is, without a sweep having been there
local number = require("lib.number")
local queue = require("lib.queue")
local event = require("lib.events.event")
local generation = require("lib.events.generation")
local hand = require("lib.events.hand")

local M = {}

local LOOK = 1000           -- entries of an index that one look reads: beyond, the figures are near
local STEP = 50

local text = number.text
local expired               -- events past their deadline that no sweep has seen, by id: their sequence

local function unswept()
  if expired then return expired end
  expired = { ids = {}, seqs = {} }
  local ids = queue.here.deadlines and queue.here.log
    and redis.call("ZRANGE", queue.key.deadlines, "-inf", queue.now, "BYSCORE", "LIMIT", 0, LOOK) or {}
  if #ids == 0 then return expired end
  local seqs = redis.call("ZMSCORE", queue.key.log, unpack(ids))
  for i = 1, #ids do
    if seqs[i] then
      expired.ids[#expired.ids + 1] = ids[i]
      expired.seqs[ids[i]] = tonumber(seqs[i])
    end
  end
  return expired
end

local function least(...)
  local found
  for i = 1, select("#", ...) do
    local value = (select(i, ...))
    if value and (not found or value < found) then found = value end
  end
  return found
end

-- How many of the pending are past their deadline: all, and those in flight.
local function past(gen, cursor)
  local all, in_flight, list = 0, 0, unswept()
  hand.load(gen, list.ids)
  for _, id in ipairs(list.ids) do
    local held, stop = hand.get(gen, id)
    if list.seqs[id] > cursor then
      all = all + 1
    elseif not (held and held.redriven) and (stop or redis.call("ZSCORE", gen.key.parked, id)) then
      all = all + 1
      in_flight = in_flight + (stop and 1 or 0)
    end
  end
  return all, in_flight
end

-- The creation of the first event behind the cursor that has not expired.
local function first_ahead(cursor)
  local at, left, step = cursor, LOOK, #unswept().ids > 0 and STEP or 1
  while left > 0 do
    local found = redis.call("ZRANGE", queue.key.log, "(" .. text(at), "+inf", "BYSCORE", "LIMIT", 0, step,
      "WITHSCORES")
    for i = 1, #found, 2 do
      local each = event.get(found[i])
      if each and each.created and not (each.expires and each.expires <= queue.ms) then return each.created end
      at = tonumber(found[i + 1])
    end
    if #found < 2 * step then return nil end
    left = left - step
  end
end

local function created(id)
  local each = event.get(id)
  return each and each.created
end

-- Of what is in hand the log tells the oldest; retried ones may have left it.
local function oldest_in_hand(gen, index)
  local ids = gen.here[index] and redis.call("ZRANGE", gen.key[index], 0, LOOK - 1) or {}
  if #ids == 0 then return nil end
  local seqs, list = redis.call("ZMSCORE", queue.key.log, unpack(ids)), unswept()
  local first, oldest = nil, nil
  for i = 1, #ids do
    local seq = tonumber(seqs[i] or nil)
    local held = (not seq or list.seqs[ids[i]]) and hand.get(gen, ids[i])
    if held and held.redriven then
      oldest = least(oldest, created(ids[i]))
    elseif seq and not list.seqs[ids[i]] and (not first or seq < first.seq) then
      first = { seq = seq, id = ids[i] }
    end
  end
  return least(oldest, first and created(first.id))
end

local function card(gen, index)
  return gen.here[index] and redis.call("ZCARD", gen.key[index]) or 0
end

-- name, lag, in flight, created of the oldest pending or "", dead, dropped; name and reason of one whose keys hold
-- something else; false of one that is not active.
function M.of(g)
  local facts, gen = generation.active(g) and generation.facts(g), generation.of(g)
  if not facts then return false end
  local key, found, wanted = generation.prove(gen, { "leased", "parked", "lease", "dead" })
  if key then return { facts.name, key .. " holds a " .. found .. " where a " .. wanted .. " belongs" } end
  local cursor = generation.cursor(redis.call("HGET", queue.key.cursor, g) or "") or facts.born
  local gone, gone_in_flight = past(gen, cursor)
  local lag = redis.call("ZCOUNT", queue.key.log, "(" .. text(cursor), "+inf")
    + card(gen, "leased") + card(gen, "parked")
  local oldest = least(first_ahead(cursor), oldest_in_hand(gen, "leased"), oldest_in_hand(gen, "parked"))
  local retention = tonumber(queue.root.dead_retention)
  local dead = not retention and card(gen, "dead")
    or redis.call("ZCOUNT", gen.key.dead, "(" .. text(queue.ms - retention), "+inf")
  local dropped = redis.call("HGET", queue.key.dropped, g)
  return { facts.name, text(lag - gone), text(card(gen, "leased") - gone_in_flight), oldest and text(oldest) or "",
    text(dead), dropped or "0" }
end

return M
