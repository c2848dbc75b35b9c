-- events/exchange: settles a batch and takes the next one
-- FLAGS  allow-oom
-- KEYS   root: ev body log deadlines archives gens cursor retiring due mort roster refs seen was broken idle
--        leased:* parked:* lease:* dead:* error:* ob:* bell:*
-- ARGV   now slot number, name generation nonce floor limit lease mode, subscriptions,
--        then per settlement: verb subscription id token extra data
-- REPLY  answer words of the settlements, the reply of a take
-- REFUSES NOQUEUE CORRUPT STALE SUBGONE
-- MOVES  pending -> acknowledged; pending -> dead; active -> completed; completed -> removed; expired -> removed
local queue = require("lib.queue")
local columns = require("lib.events.columns")
local deliver = require("lib.events.deliver")
local resolve = require("lib.events.resolve")
local ring = require("lib.events.ring")
local verdict = require("lib.events.verdict")

local refusal = queue.open(columns.resolving, columns.settings)
if refusal then return refusal end
queue.settings({ "max_attempts", "backoff" })

-- the slot holds: answers ";" what the take remembers
local answers, taken = string.match(queue.answer or "", "^([^;]*);(.*)$")
if not answers then
  local wrong, subs, from = verdict.subscriptions(queue.first + deliver.width)
  if wrong then return wrong end
  ring.hush(tonumber(ARGV[queue.first + 4]) > 0)
  answers = table.concat(verdict.run(from, subs), ",")
  ring.hush(false)
  if answers ~= "" then
    queue.remember(answers .. ";")
    resolve.commit()
  end
end
refusal = deliver.refusal(queue.first)
if refusal then return refusal end
local again = taken and taken ~= "" and deliver.again(queue.first, taken)
return { answers, again or deliver.run(queue.first, answers .. ";") }
