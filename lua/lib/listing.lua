-- listing: slices of an index from its end to its start, with cursors that survive changes in between
--
-- A zset cursor is score "|" id: the next slice starts at the entry before that place, found by rank, whether or not
-- the entry still exists. A list cursor is the position of an entry (see lib/ready).
local number = require("lib.number")
local queue = require("lib.queue")
local ghosts = require("lib.ghosts")

local M = {}

-- Byte order, as Redis sorts equal scores; Lua's own comparison goes by the server's locale.
function M.before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- How many entries of `key` stand before the place (score, id).
function M.rank(key, score, id)
  local held = redis.call("ZSCORE", key, id)
  if held and tonumber(held) == tonumber(score) then return redis.call("ZRANK", key, id) end
  local low = redis.call("ZCOUNT", key, "-inf", "(" .. score)
  local high = redis.call("ZCOUNT", key, "-inf", score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if M.before(redis.call("ZRANGE", key, middle, middle)[1], id) then low = middle + 1 else high = middle end
  end
  return low
end

-- How many entries of `key` stand up to and with the place (score, id).
function M.behind(key, score, id)
  local held = redis.call("ZSCORE", key, id)
  local before = M.rank(key, score, id)
  return held and tonumber(held) == tonumber(score) and before + 1 or before
end

-- Up to `limit` entries of `key` before `cursor` ("" for its end), latest first: their ids, the cursor of each, and
-- whether there are more.
function M.zset(key, cursor, limit)
  local score, id = string.match(cursor, "^([^|]+)|(.*)$")
  local upper = score and M.rank(key, score, id) or redis.call("ZCARD", key)
  local lower = math.max(upper - limit, 0)
  local found = upper > 0 and redis.call("ZRANGE", key, lower, upper - 1, "WITHSCORES") or {}
  local ids, places = {}, {}
  for i = #found - 1, 1, -2 do
    ids[#ids + 1], places[#places + 1] = found[i], found[i + 1] .. "|" .. found[i]
  end
  return ids, places, lower > 0
end

-- The same from the start on, up to the entry that was the last one when the listing began; the third value is the
-- cursor that goes on, or nil.
function M.oldest(key, cursor, limit)
  local last, score, id = string.match(cursor, "^([^/]+)/([^|]+)|(.*)$")
  last = last or redis.call("ZRANGE", key, -1, -1, "WITHSCORES")[2]
  if not last then return {}, {}, nil end
  local lower = score and M.behind(key, score, id) or 0
  local found = redis.call("ZRANGE", key, lower, lower + limit - 1, "WITHSCORES")
  local ids, places = {}, {}
  for i = 1, #found, 2 do
    if tonumber(found[i + 1]) > tonumber(last) then return ids, places, nil end
    ids[#ids + 1], places[#places + 1] = found[i], last .. "/" .. found[i + 1] .. "|" .. found[i]
  end
  return ids, places, #ids == limit and places[#places] or nil
end

-- The same for the ready list. Dead entries are left out; the third value is the cursor that goes on behind them all.
function M.list(cursor, limit)
  local start = tonumber(queue.root.first or "0")
  local last = start + redis.call("LLEN", queue.key.ready) - 1
  if cursor ~= "" then last = math.min(last, tonumber(cursor) - 1) end
  local from = math.max(start, last - limit + 1)
  local found = last >= from and redis.call("LRANGE", queue.key.ready, from - start, last - start) or {}
  local ids, places = {}, {}
  for i = #found, 1, -1 do
    local position = from + i - 1
    if ghosts.alive(found[i], position) then
      ids[#ids + 1], places[#places + 1] = found[i], number.text(position)
    end
  end
  return ids, places, from > start and number.text(from) or nil
end

return M
