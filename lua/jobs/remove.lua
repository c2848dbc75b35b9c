-- jobs/remove: deletes a job that is not leased, or what is left of a damaged one; its id is free at once
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history progress waiters group:* w:*
-- ARGV   now slot number, id
-- REPLY  1, or 0 when the job is unknown or leased
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  ready -> removed; scheduled -> removed; completed -> removed; dead -> removed; cancelled -> removed;
--        quarantined -> removed
local queue = require("lib.queue")
local head = require("lib.head")
local find = require("lib.find")
local move = require("lib.move")
local touched = require("lib.touched")
local operate = require("lib.operate")

local refusal = queue.open(touched.columns, touched.fields)
if refusal then return refusal end
if queue.answer then return queue.answer end

local id = ARGV[queue.first]
local text = redis.call("HGET", queue.key.head, id)
local job = text and head.parse(id, text)
local broken = redis.call("HEXISTS", queue.key.broken, id) == 1
local whole, held = find.lease(id)
local INDEXES = { "sched", "ranked", "leased", "completed", "dead", "cancelled", "quarantined", "aging" }

-- Whether anything is left of a job that has no head.
local function remains()
  for _, index in ipairs(INDEXES) do
    if redis.call("ZSCORE", queue.key[index], id) then return true end
  end
  return redis.call("HEXISTS", queue.key.body, id) == 1
end

local answer = "1"
if broken or text and not job or not whole or not text and remains() then
  operate.remove_remains(id)
elseif not job or held then
  answer = "0"
else
  operate.remove(job, false)
end
queue.remember(answer)
move.done()
return answer
