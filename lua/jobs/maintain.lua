-- jobs/maintain: one bounded sweep: due jobs, lapsed leases, records past their retention, dedup memory past its time
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history progress waiters group:* w:*
-- ARGV   now slot number, limit, ms that must have passed since anybody swept last
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
local answers = require("lib.answers")

local refusal = queue.open(move.columns, move.fields)
if refusal then return refusal end
if queue.answer then return pack.unlist(queue.answer) end
queue.settings({ "history_ttl", "group_scan", "scan", "swept" })
local limit, gap = tonumber(ARGV[queue.first]), tonumber(ARGV[queue.first + 1])
if gap > 0 and queue.ms < tonumber(queue.root.swept or "0") + gap then return { 0, 0, 0, 0, 0 } end

local lapsed = recover.lapses(limit)
local due = recover.due(limit)
local retention, kept_more = sweep.retention(limit)
local dedup = sweep.dedup(limit)
local more = lapsed == limit or due == limit or dedup == limit or kept_more
local answer = {}
for i, count in ipairs({ due, lapsed, retention, dedup, more and 1 or 0 }) do answer[i] = number.text(count) end
answers.sweep()
if gap > 0 then plan.add("HSET", KEYS[1], "swept", queue.now) end
-- an idle sweep has nothing to answer twice
if due + lapsed + retention + dedup > 0 then
  plan.add("HSET", KEYS[1], queue.slot(), queue.remembered(pack.list(answer)))
end
plan.commit()
return answer
