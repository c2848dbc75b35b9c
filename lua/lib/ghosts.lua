-- ghosts: dead entries of the ready list, which can't be cut out of its middle cheaply
--
-- Hash `ghost`: id -> n, or id -> n "," position once a live entry of the same id stands behind its dead ones. Root
-- field `ghosts` is their sum. A dead entry is always ahead of a live one of its id, so a take skips the first n.
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local counter = require("lib.counter")

local M = {}

local function count(value)
  return value and tonumber(string.match(value, "^%d+")) or 0
end

local function of(id)
  return M.any() and count(redis.call("HGET", queue.key.ghost, id)) or 0
end

local function sum()
  return counter.get("ghosts")
end

function M.any()
  return sum() > 0
end

-- How many entries of the ready list count.
function M.live_length()
  return redis.call("LLEN", queue.key.ready) - sum()
end

-- The entry of a job that leaves the middle of the list dies.
function M.add(id)
  plan.add("HSET", queue.key.ghost, id, number.text(of(id) + 1))
  counter.set("ghosts", sum() + 1)
end

-- Whether the list holds a live entry of `id`: the one search of the whole list, at some 10 ms a million entries.
function M.has_live(id)
  return #redis.call("LPOS", queue.key.ready, id, "COUNT", 0) > of(id)
end

-- Takes a damaged job out of the list if it has a live entry there: that entry would hand out a new job of the same id
-- a second time.
function M.add_if_live(id)
  if M.has_live(id) then M.add(id) end
end

-- Tells the live entries of `ids`, pushed at `position` and after, from their dead ones.
function M.mark_live(ids, position)
  local values = redis.call("HMGET", queue.key.ghost, unpack(ids))
  for i = 1, #ids do
    local dead = count(values[i])
    if dead > 0 then
      plan.add("HSET", queue.key.ghost, ids[i], number.text(dead) .. "," .. number.text(position + i - 1))
    end
  end
end

-- Whether the entry of `id` at `position` counts.
function M.alive(id, position)
  local value = M.any() and redis.call("HGET", queue.key.ghost, id)
  return not value or tonumber(string.match(value, ",(%d+)$")) == position
end

-- The live entries of a slice of the list: ids, and for each the number of list entries up to and with it.
function M.live_entries(slice, wanted)
  local ids, upto, met = {}, {}, {}
  local dead = M.any() and #slice > 0 and redis.call("HMGET", queue.key.ghost, unpack(slice)) or {}
  for i = 1, #slice do
    local id = slice[i]
    met[id] = (met[id] or 0) + 1
    if met[id] > count(dead[i]) and #ids < wanted then
      ids[#ids + 1], upto[#upto + 1] = id, i
    end
  end
  return ids, upto
end

-- Forgets the dead among the first `popped` entries of `slice`.
function M.forget(slice, popped)
  if popped == 0 or not M.any() then return end
  local met, order, gone_in_all = {}, {}, 0
  for i = 1, popped do
    if not met[slice[i]] then order[#order + 1] = slice[i] end
    met[slice[i]] = (met[slice[i]] or 0) + 1
  end
  local values = redis.call("HMGET", queue.key.ghost, unpack(order))
  for i = 1, #order do
    local dead = count(values[i])
    local gone = math.min(met[order[i]], dead)
    gone_in_all = gone_in_all + gone
    if gone > 0 and gone == dead then
      plan.add("HDEL", queue.key.ghost, order[i])
    elseif gone > 0 then
      plan.add("HSET", queue.key.ghost, order[i], number.text(dead - gone))
    end
  end
  if gone_in_all > 0 then counter.set("ghosts", sum() - gone_in_all) end
end

return M
