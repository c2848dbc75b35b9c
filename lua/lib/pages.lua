-- pages: slices of one state's jobs, from the last to the first
local queue = require("lib.queue")
local ranked = require("lib.ranked")
local listing = require("lib.listing")
local refuse = require("lib.refuse")

local M = {}

local PARTS = 4
local INDEX = { scheduled = "sched", leased = "leased" }

local function last(places)
  return places[#places]
end

local function of_index(key, cursor, scan)
  local ids, places, more = listing.zset(key, cursor, scan)
  return ids, places, more and last(places) or nil
end

local function marked(mark, places)
  for i = 1, #places do places[i] = mark .. places[i] end
  return places
end

-- Ready jobs stand in three parts, here from the last to be taken to the first: "z" ranked behind the list, "l" the
-- list, "h" ranked before it.
local function part_of_ready(cursor, scan)
  local part, place = string.match(cursor, "^(%a?)(.*)$")
  if part == "l" then
    local ids, places, rest = listing.list(place, scan)
    return ids, marked("l", places), rest and "l" .. rest or "h" .. ranked.before_list
  end
  local ids, places, more = listing.zset(queue.key.ranked, place, scan)
  if part == "h" then return ids, marked("h", places), more and last(places) or nil end
  local kept = 0
  while kept < #ids and ranked.is_behind(places[kept + 1]) do kept = kept + 1 end
  for i = kept + 1, #ids do ids[i], places[i] = nil, nil end
  marked("z", places)
  return ids, places, kept > 0 and kept == scan and last(places) or "l"
end

-- A slice of ready jobs goes on into the next part, a few times at most: dead entries of the list may fill a part.
local function of_ready(cursor, scan)
  local ids, places, rest = {}, {}, cursor
  for _ = 1, PARTS do
    local found, at, next = part_of_ready(rest, scan - #ids)
    for i = 1, #found do
      ids[#ids + 1], places[#places + 1] = found[i], at[i]
    end
    rest = next
    if not rest or #ids >= scan then break end
  end
  return ids, places, rest
end

-- The refusal of a group that something else sits on, or nil.
function M.damage(state, name)
  if not name or state == "ready" or state == "blocked" or INDEX[state] then return nil end
  local key = KEYS[1] .. ":group:" .. state .. ":" .. name
  local found = redis.call("TYPE", key)["ok"]
  if found ~= "none" and found ~= "zset" then return refuse.wrong_type(key, found, "zset") end
end

local function index_key(state, name)
  if not name or INDEX[state] then return queue.key[INDEX[state] or state] end
  return KEYS[1] .. ":group:" .. state .. ":" .. name
end

-- Up to `scan` ids of `state` before `cursor` ("" for the end), the cursor of each, and where to go on, or nil. With a
-- name the terminal states look at the jobs of that name alone, the others at all.
function M.slice(state, name, cursor, scan)
  if state == "blocked" then return {}, {}, nil end
  if state == "ready" then return of_ready(cursor, scan) end
  return of_index(index_key(state, name), cursor, scan)
end

-- The same for a terminal state from the first to finish on, up to the last one at the time of the first call.
function M.oldest(state, name, cursor, scan)
  return listing.oldest(index_key(state, name), cursor, scan)
end

return M
