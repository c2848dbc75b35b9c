-- jobs/list: a page of the jobs of one state
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched broken completed dead cancelled quarantined result error progress
--        ready ranked ghost group:*
-- ARGV   now slot number, state, "1" when a name is wanted, name, limit, cursor
-- REPLY  the next cursor or "" at the end, then as lib/record
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local head = require("lib.head")
local record = require("lib.record")
local pages = require("lib.pages")

local SCAN = 1000           -- entries that a page with a name looks at

local refusal = queue.open({ "head", "body", "meta", "lease", "leased", "sched", "broken", "completed", "dead",
  "cancelled", "quarantined", "result", "error", "progress", "ready", "ranked",
  "ghost" }, { "max_attempts", "timeout", "first", "ghosts" })
if refusal then return refusal end

local state, named, name = ARGV[queue.first], ARGV[queue.first + 1] == "1", ARGV[queue.first + 2]
local limit, cursor = tonumber(ARGV[queue.first + 3]), ARGV[queue.first + 4]
local damage = pages.damage(state, named and name)
if damage then return damage end

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

local ids, places, rest = pages.slice(state, named and name, cursor, named and math.max(limit, SCAN) or limit)
if named then ids, rest = of_name(ids, places, rest) end
return { rest or "", record.read(ids) }
