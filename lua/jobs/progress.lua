-- jobs/progress: stores how far a leased job has come
-- FLAGS  allow-oom
-- KEYS   root: head lease leased progress
-- ARGV   now slot number, id, token, progress bytes
-- REPLY  1; L lost, G gone
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local plan = require("lib.plan")
local lease = require("lib.lease")

local refusal = queue.open({ "head", "lease", "leased", "progress" }, {})
if refusal then return refusal end

local id, token = ARGV[queue.first], ARGV[queue.first + 1]
if redis.call("HEXISTS", queue.key.head, id) == 0 then return "G" end
local held, stop = redis.call("HGET", queue.key.lease, id), redis.call("ZSCORE", queue.key.leased, id)
if not held or not stop or tonumber(stop) <= queue.ms or not lease.has(held, token) then return "L" end
plan.add("HSET", queue.key.progress, id, ARGV[queue.first + 2])
plan.commit()
return "1"
