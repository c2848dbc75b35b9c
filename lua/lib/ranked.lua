-- ranked: the ready jobs of a priority other than 0, and the order of them and the list together
--
-- The zset is scored -priority * SPAN + order. The order counts up at the tail and down at the head from the middle of
-- SPAN, so both stay exact whole numbers: 2,199,023,255,552 entries in each direction before the index must once have
-- been empty.
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local counter = require("lib.counter")
local ghosts = lazy("lib.ghosts")

local M = {}

local SPAN = 2 ^ 42
local MIDDLE = 2 ^ 41
local SKIP = 1000           -- dead list entries that one call steps over beyond what it was asked for

-- The place before the list among the ranked, as a listing's cursor; and whether a ranked place lies behind the list.
M.before_list = number.text(SPAN) .. "|"
function M.is_behind(place)
  return tonumber(string.match(place, "^[^|]+")) >= SPAN
end

local function put(entry, order)
  plan.add("ZADD", queue.key.ranked, number.text(-entry[2] * SPAN + order), entry[1])
end

-- Plans the entries of jobs, { id, priority }, for the tail and for the head of their priority.
function M.enter(tails, fronts)
  local up, down = MIDDLE, MIDDLE - 1
  if redis.call("ZCARD", queue.key.ranked) > 0 then
    up, down = tonumber(queue.root.rank_tail or up), tonumber(queue.root.rank_head or down)
  end
  for i = 1, #tails do
    put(tails[i], math.min(up, SPAN - 1))
    up = up + 1
  end
  for i = #fronts, 1, -1 do
    put(fronts[i], math.max(down, 0))
    down = down - 1
  end
  counter.set("rank_tail", up)
  counter.set("rank_head", down)
end

local function between(from, to, limit)
  if limit <= 0 then return {} end
  return redis.call("ZRANGE", queue.key.ranked, from, to, "BYSCORE", "LIMIT", 0, limit)
end

-- As ready.peek, when there are ranked jobs (`mixed`) or dead list entries (`dead`).
function M.peek(limit, mixed, dead)
  local ids, upto = mixed and between("-inf", "(0", limit) or {}, {}
  for i = 1, #ids do upto[i] = 0 end
  local wanted = limit - #ids
  local reach = dead and wanted + SKIP or wanted
  local slice = wanted > 0 and redis.call("LRANGE", queue.key.ready, 0, reach - 1) or {}
  local live, live_upto = ghosts.live_entries(slice, wanted)
  for i = 1, #live do
    ids[#ids + 1], upto[#upto + 1] = live[i], live_upto[i]
  end
  local bounded = #live < wanted and #slice == reach
  if mixed and not bounded then
    local low = between(number.text(SPAN), "+inf", limit - #ids)
    for i = 1, #low do
      ids[#ids + 1], upto[#upto + 1] = low[i], 0
    end
  end
  return { ids = ids, upto = upto, slice = slice, bounded = bounded, short = #live < wanted }
end

-- Plans what ready.pop does besides trimming the list; returns how many list entries go.
function M.pop(peeked, count)
  local popped = 0
  for i = 1, count do
    if peeked.upto[i] > 0 then
      popped = peeked.upto[i]
    else
      plan.add("ZREM", queue.key.ranked, peeked.ids[i])
    end
  end
  if count == #peeked.ids and peeked.short then popped = #peeked.slice end
  ghosts.forget(peeked.slice, popped)
  return popped
end

return M
