-- jobs/info: counts every state and tells what stands at the front
-- FLAGS  allow-oom
-- KEYS   root: head ready ranked ghost sched leased completed dead cancelled quarantined
-- ARGV   now slot number
-- REPLY  paused, created of the next ready job or "", ready, scheduled, leased, completed, dead, cancelled, quarantined
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local head = require("lib.head")
local ready = require("lib.ready")
local ghosts = require("lib.ghosts")

local refusal = queue.open({ "head", "ready", "ranked", "ghost", "sched", "leased", "completed", "dead", "cancelled",
  "quarantined" }, { "paused", "first", "rank_tail", "ghosts" })
if refusal then return refusal end

local function card(index)
  return queue.here[index] and redis.call("ZCARD", queue.key[index]) or 0
end

local function oldest()
  local id = ready.peek(1).ids[1]
  local text = id and redis.call("HGET", queue.key.head, id)
  local job = text and head.parse(id, text)
  return job and head.created(job) or ""
end

return { queue.root.paused or "0", oldest(),
  ghosts.live_length() + card("ranked"), card("sched"), card("leased"),
  card("completed"), card("dead"), card("cancelled"), card("quarantined") }
