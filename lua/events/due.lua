-- events/due: which categories of a sweep have work; the first step of one
-- FLAGS  allow-oom
-- KEYS   root: deadlines archives retiring due mort seen
-- ARGV   now slot number, ms that must have passed since anybody swept last
-- REPLY  names of categories
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local plan = require("lib.plan")
local answers = require("lib.answers")
local columns = require("lib.events.columns")

local refusal = queue.open(columns.sweeping, { "archive_retention", "dead_retention", "dedup", "max_backlog",
  "idle_after", "scan", "swept" })
if refusal then return refusal end

local names, gap = {}, tonumber(ARGV[queue.first])
if gap > 0 and queue.ms < tonumber(queue.root.swept or "0") + gap then return names end

local function past(index, after)
  local head = after and queue.here[index] and redis.call("ZRANGE", queue.key[index], 0, 0, "WITHSCORES") or {}
  return head[2] and tonumber(head[2]) + after <= queue.ms
end

if past("deadlines", 0) then names[#names + 1] = "deadlines" end
if past("due", 0) then names[#names + 1] = "lapsed" end
if past("archives", tonumber(queue.root.archive_retention)) then names[#names + 1] = "archives" end
if queue.here.retiring then names[#names + 1] = "removals" end
if past("mort", tonumber(queue.root.dead_retention)) then names[#names + 1] = "dead" end
if past("seen", tonumber(queue.root.dedup)) then names[#names + 1] = "memory" end
if queue.root.max_backlog ~= "" or queue.root.idle_after ~= "" then names[#names + 1] = "dropped" end
answers.sweep()
if gap > 0 then plan.add("HSET", KEYS[1], "swept", queue.now) end
plan.commit()
return names
