-- events/settle: ends leases: ack, fail, release
-- FLAGS  allow-oom
-- KEYS   root: ev body log deadlines archives gens cursor retiring due mort roster refs seen was broken idle
--        leased:* parked:* lease:* dead:* error:* ob:* bell:*
-- ARGV   now slot number, subscriptions, then per settlement: verb subscription id token extra data
-- REPLY  one answer word per settlement, joined by commas
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  pending -> acknowledged; pending -> dead; active -> completed; completed -> removed; expired -> removed
local queue = require("lib.queue")
local columns = require("lib.events.columns")
local resolve = require("lib.events.resolve")
local verdict = require("lib.events.verdict")

local refusal = queue.open(columns.resolving, columns.settings)
if refusal then return refusal end
if queue.answer then return queue.answer end
queue.settings({ "max_attempts", "backoff" })
local wrong, subs, from = verdict.subscriptions(queue.first)
if wrong then return wrong end
local answers = table.concat(verdict.run(from, subs), ",")
queue.remember(answers)
resolve.commit()
return answers
