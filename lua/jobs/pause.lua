-- jobs/pause: stops or restarts taking; the jobs stay where they are
-- FLAGS  allow-oom
-- KEYS   root: ready ranked sched bell
-- ARGV   now slot number, 1 to pause or 0 to resume
-- REPLY  1
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local plan = require("lib.plan")
local wake = require("lib.wake")

local refusal = queue.open({ "ready", "ranked", "sched", "bell" }, { "paused" })
if refusal then return refusal end
queue.root.paused = ARGV[queue.first]
plan.add("HSET", KEYS[1], "paused", queue.root.paused)
if queue.here.ready or queue.here.ranked or queue.here.sched then wake.ring() end
plan.commit()
return "1"
