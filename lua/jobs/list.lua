-- jobs/list: a page of the jobs of one state
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched broken completed dead cancelled quarantined result error ready ranked
--        ghost group:*
-- ARGV   now slot number, state, "1" when a name is wanted, name, limit, cursor
-- REPLY  the next cursor or "" at the end, then as lib/record
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local head = require("lib.head")
local record = require("lib.record")
local ready = require("lib.ready")
local listing = require("lib.listing")

local SCAN = 1000           -- entries that a page with a name looks at

local refusal = queue.open({ "head", "body", "meta", "lease", "leased", "sched", "broken", "completed", "dead",
  "cancelled", "quarantined", "result", "error", "ready", "ranked", "ghost" }, { "max_attempts", "timeout", "first" })
if refusal then return refusal end

local state, named, name = ARGV[queue.first], ARGV[queue.first + 1] == "1", ARGV[queue.first + 2]
local limit, cursor = tonumber(ARGV[queue.first + 3]), ARGV[queue.first + 4]
local INDEX = { scheduled = "sched", leased = "leased" }

local function last(places)
  return places[#places]
end

local function of_index(key, scan)
  local ids, places, more = listing.zset(key, cursor, scan)
  return ids, places, more and last(places) or nil
end

local function marked(mark, places)
  for i = 1, #places do places[i] = mark .. places[i] end
  return places
end

-- Ready jobs stand in three parts, here from the last to be taken to the first: "z" ranked behind the list, "l" the
-- list, "h" ranked before it.
local function of_ready(scan)
  local part, place = string.match(cursor, "^(%a?)(.*)$")
  if part == "l" then
    local ids, places, rest = listing.list(place, scan)
    return ids, marked("l", places), rest and "l" .. rest or "h" .. ready.before_list
  end
  local ids, places, more = listing.zset(queue.key.ranked, place, scan)
  if part == "h" then return ids, marked("h", places), more and last(places) or nil end
  local kept = 0
  while kept < #ids and ready.is_behind(places[kept + 1]) do kept = kept + 1 end
  for i = kept + 1, #ids do ids[i], places[i] = nil, nil end
  marked("z", places)
  return ids, places, kept > 0 and kept == scan and last(places) or "l"
end

local function slice(scan)
  if state == "blocked" then return {}, {}, nil end
  if state == "ready" then return of_ready(scan) end
  if not named or INDEX[state] then return of_index(queue.key[INDEX[state] or state], scan) end
  return of_index(KEYS[1] .. ":group:" .. state .. ":" .. name, scan)
end

-- The first `limit` of the slice that carry the name, and where to go on.
local function of_name(ids, places, rest)
  local heads, kept = #ids > 0 and redis.call("HMGET", queue.key.head, unpack(ids)) or {}, {}
  for i = 1, #ids do
    local job = heads[i] and head.parse(ids[i], heads[i])
    if job and job.fixed.name == name then kept[#kept + 1] = ids[i] end
    if #kept == limit and i < #ids then return kept, places[i] end
  end
  return kept, rest
end

local ids, places, rest = slice(named and math.max(limit, SCAN) or limit)
if named then ids, rest = of_name(ids, places, rest) end
return { rest or "", record.read(ids) }
