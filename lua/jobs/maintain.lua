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
local touched = require("lib.touched")
local number = require("lib.number")
local recover = require("lib.recover")
local sweep = require("lib.sweep")
local answers = require("lib.answers")

local refusal = queue.open(touched.columns, touched.fields)
if refusal then return refusal end
if queue.answer then return pack.unlist(queue.answer) end
queue.settings({ "history_ttl", "group_scan", "scan", "swept", "turn" })
local limit, gap = tonumber(ARGV[queue.first]), tonumber(ARGV[queue.first + 1])
if gap > 0 and queue.ms < tonumber(queue.root.swept or "0") + gap then return { 0, 0, 0, 0, 0 } end

-- Whether an index of which `count` entries were dealt with has more that are due.
local function has_more(index, count)
  return count == limit and redis.call("ZCOUNT", queue.key[index], "-inf", queue.now) > 0
end

local idle = not (queue.here.ready or queue.here.ranked or queue.here.sched or queue.here.leased)
local lapsed, due = recover.lapses(limit), recover.due(limit)
local retention, kept_more = sweep.retention(limit)
local dedup, remembered_more = sweep.dedup(limit)
local more = has_more("leased", lapsed) or has_more("sched", due) or kept_more or remembered_more
local answer = {}
for i, count in ipairs({ due, lapsed, retention, dedup, more and 1 or 0 }) do answer[i] = number.text(count) end
answers.sweep()
-- with no live job there is nothing to wake anybody for
if idle and queue.here.bell then plan.unlink(queue.key.bell) end
if gap > 0 then plan.add("HSET", KEYS[1], "swept", queue.now) end
-- an idle sweep has nothing to answer twice
if due + lapsed + retention + dedup > 0 then
  queue.remember(pack.list(answer))
end
plan.commit()
return answer
