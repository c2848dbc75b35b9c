-- jobs/maintain: one bounded sweep: due jobs, lapsed leases, records past their retention, dedup memory past its time
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history waiters group:* w:*
-- ARGV   now slot number, limit
-- REPLY  due, lapsed, retention, dedup: how many of each; 1 when more is due now; all as text
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  scheduled -> ready; leased -> scheduled; leased -> ready; leased -> dead; leased -> cancelled;
--        completed -> removed; dead -> removed; cancelled -> removed; quarantined -> removed
local queue = require("lib.queue")
local plan = require("lib.plan")
local pack = require("lib.pack")
local move = require("lib.move")
local number = require("lib.number")
local recover = require("lib.recover")
local sweep = require("lib.sweep")

local refusal = queue.open(move.columns, move.fields)
if refusal then return refusal end
if queue.answer then return pack.unlist(queue.answer) end
queue.settings({ "history_ttl", "group_scan", "scan" })
local limit = tonumber(ARGV[queue.first])

local lapsed = recover.lapses(limit)
local due = recover.due(limit)
local retention, kept_more = sweep.retention(limit)
local dedup = sweep.dedup(limit)
local more = lapsed == limit or due == limit or dedup == limit or kept_more
local answer = { number.text(due), number.text(lapsed), number.text(retention), number.text(dedup), more and "1" or "0" }
sweep.answers()
-- an idle sweep has nothing to answer twice
if due + lapsed + retention + dedup > 0 then
  plan.add("HSET", KEYS[1], queue.slot(), queue.remembered(pack.list(answer)))
end
plan.commit()
return answer
