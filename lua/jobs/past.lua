-- jobs/past: reads the ledger and the history of one job
-- FLAGS  allow-oom
-- KEYS   root: head lease attempts history error
-- ARGV   now slot number, id
-- REPLY  history rung, attempt cap, transition cap, head, lease, attempts, history, error,
--        the same error as the ledger keeps it
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local past = require("lib.past")

local refusal = queue.open({ "head", "lease", "attempts", "history", "error" },
  { "history", "attempt_cap", "transition_cap" })
if refusal then return refusal end
local id = ARGV[queue.first]
local failure = redis.call("HGET", queue.key.error, id)
return {
  queue.root.history, queue.root.attempt_cap, queue.root.transition_cap,
  redis.call("HGET", queue.key.head, id), redis.call("HGET", queue.key.lease, id),
  redis.call("HGET", queue.key.attempts, id), redis.call("HGET", queue.key.history, id),
  failure, failure and past.brief(failure),
}
