-- jobs/await: the outcome of a job, or a place among those who wait for it
-- FLAGS  allow-oom
-- KEYS   root: head lease leased result error waiters w:*
-- ARGV   now slot number, id, nonce, ms to stay registered (0: not any more)
-- REPLY  c result, d detail, x, q detail, g (gone) as one text; "" while it is not finished
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local plan = require("lib.plan")
local find = require("lib.find")
local waiters = require("lib.waiters")

local refusal = queue.open({ "head", "lease", "leased", "result", "error", "waiters" }, {})
if refusal then return refusal end

local id, nonce = ARGV[queue.first], ARGV[queue.first + 1]
local told = redis.call("LRANGE", waiters.key(nonce), 0, 0)[1]
if told then return told end
local damage, job = find.job(id)
if damage then return damage end
if not job then return "g" end
if not job.waiting then
  local column = job.letter == "c" and "result" or "error"
  return job.letter .. (redis.call("HGET", queue.key[column], id) or "")
end
waiters.register(id, nonce, tonumber(ARGV[queue.first + 2]))
plan.commit()
return ""
