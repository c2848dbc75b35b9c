-- events/take: leases events to a taker of a subscription, after recovering its lapsed leases
-- FLAGS  allow-oom
-- KEYS   root: ev body log deadlines archives gens cursor retiring due mort roster refs seen was broken idle
--        leased:* parked:* lease:* dead:* error:* ob:* bell:*
-- ARGV   now slot number, name generation nonce floor limit lease mode
-- REPLY  now first-stamp max-attempts more next ids headers bodies attempts lease-ends
-- REFUSES NOQUEUE CORRUPT STALE SUBGONE
-- MOVES  pending -> dead; active -> completed
local queue = require("lib.queue")
local columns = require("lib.events.columns")
local deliver = require("lib.events.deliver")

local refusal = queue.open(columns.resolving, columns.settings)
if refusal then return refusal end
queue.settings({ "max_attempts" })
refusal = deliver.refusal(queue.first)
if refusal then return refusal end
return queue.answer and deliver.again(queue.first, queue.answer) or deliver.run(queue.first, "")
