-- jobs/errors: groups a slice of the jobs of one terminal state by name and error type
-- FLAGS  allow-oom
-- KEYS   root: head error completed dead cancelled quarantined ready ranked ghost sched leased
-- ARGV   now slot number, state, limit, cursor
-- REPLY  the next cursor or "", then per group: name, error type, count, newest finish in ms
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local head = require("lib.head")
local detail = require("lib.detail")
local number = require("lib.number")
local pages = require("lib.pages")

local refusal = queue.open({ "head", "error", "completed", "dead", "cancelled", "quarantined", "ready", "ranked",
  "ghost", "sched", "leased" }, { "first", "ghosts" })
if refusal then return refusal end

local state, limit, cursor = ARGV[queue.first], tonumber(ARGV[queue.first + 1]), ARGV[queue.first + 2]
local ids, places, rest = pages.slice(state, nil, cursor, limit)
local heads = #ids > 0 and redis.call("HMGET", queue.key.head, unpack(ids)) or {}
local errors = #ids > 0 and redis.call("HMGET", queue.key.error, unpack(ids)) or {}
local groups, order = {}, {}

local function count(name, kind, at)
  local key = #name .. ":" .. name .. kind
  local group = groups[key]
  if not group then
    group = { name = name, kind = kind, count = 0, newest = 0 }
    groups[key] = group
    order[#order + 1] = group
  end
  group.count = group.count + 1
  group.newest = math.max(group.newest, at)
end

for i = 1, #ids do
  local job = heads[i] and head.parse(ids[i], heads[i])
  local at = math.floor(tonumber(string.match(places[i], "^[^|]+")))
  if job and errors[i] then count(job.fixed.name, detail.kind(errors[i]), at) end
end
local reply = { rest or "" }
for i = 1, #order do
  reply[#reply + 1] = order[i].name
  reply[#reply + 1] = order[i].kind
  reply[#reply + 1] = order[i].count
  reply[#reply + 1] = number.text(order[i].newest)
end
return reply
