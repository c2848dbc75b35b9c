-- jobs/pause: stops or restarts taking; the jobs stay where they are
-- FLAGS  allow-oom
-- KEYS   root: ready ranked sched leased bell
-- ARGV   now slot number, 1 to pause or 0 to resume
-- REPLY  1
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local plan = require("lib.plan")
local wake = require("lib.wake")

local refusal = queue.open({ "ready", "ranked", "sched", "leased", "bell" }, { "paused" })
if refusal then return refusal end
if queue.answer then return queue.answer end
queue.root.paused = ARGV[queue.first]
plan.add("HSET", KEYS[1], "paused", queue.root.paused)
queue.remember("1")
-- a paused take does not tell when something will be due, so whoever waits has to look again
if queue.here.ready or queue.here.ranked or queue.here.sched or queue.here.leased then wake.ring() end
plan.commit()
return "1"
