-- jobs/remove: deletes a job that is not leased, or what is left of a damaged one; its id is free at once
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history waiters group:* w:*
-- ARGV   now slot number, id
-- REPLY  1, or 0 when the job is unknown or leased
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  ready -> removed; scheduled -> removed; completed -> removed; dead -> removed; cancelled -> removed;
--        quarantined -> removed
local queue = require("lib.queue")
local plan = require("lib.plan")
local head = require("lib.head")
local move = require("lib.move")
local operate = require("lib.operate")
local retention = require("lib.retention")

local refusal = queue.open(move.columns, move.fields)
if refusal then return refusal end
if queue.answer then return queue.answer end

local id = ARGV[queue.first]
local text = redis.call("HGET", queue.key.head, id)
local job = text and head.parse(id, text)
local broken = redis.call("HEXISTS", queue.key.broken, id) == 1
local leased = redis.call("HEXISTS", queue.key.lease, id) == 1

-- A damaged job may stand anywhere, so it leaves every index that can be searched by its id.
local function remove_broken()
  for _, index in ipairs({ "sched", "ranked", "leased", "completed", "dead", "cancelled", "quarantined", "aging" }) do
    plan.add("ZREM", queue.key[index], id)
  end
  plan.add("HDEL", queue.key.lease, id)
  plan.add("HDEL", queue.key.broken, id)
  retention.forget(id, nil, nil, 0, false)
end

local answer = "1"
if broken or text and not job then
  remove_broken()
elseif not job or leased then
  answer = "0"
else
  operate.remove(job, false)
end
plan.add("HSET", KEYS[1], queue.slot(), queue.remembered(answer))
move.done()
return answer
