-- jobs/repair: mends jobs that check suspects: a lease without an end, an orphan, a job that no index holds
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history progress waiters group:* w:*
-- ARGV   now slot number, then ids
-- REPLY  per id what was done, "" for nothing: lease (its end is now one lease from now, or now when nobody can renew
--        it), stale (a leftover lease was dropped), orphan (removed), ready (put at the tail), index (put into its
--        state's index and group)
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local plan = require("lib.plan")
local pack = require("lib.pack")
local head = require("lib.head")
local lease = require("lib.lease")
local ghosts = require("lib.ghosts")
local wake = require("lib.wake")
local number = require("lib.number")
local move = require("lib.move")
local operate = require("lib.operate")
local removal = require("lib.removal")
local groups = require("lib.groups")
local touched = require("lib.touched")

local refusal = queue.open(touched.columns, touched.fields)
if refusal then return refusal end
if queue.answer then return pack.unlist(queue.answer) end

local INDEXES = { "sched", "ranked", "leased", "completed", "dead", "cancelled", "quarantined", "aging" }
local OWNED = { "body", "meta", "lease", "result", "error", "attempts", "history", "progress" }

local function score(index, id)
  return redis.call("ZSCORE", queue.key[index], id)
end

local function orphan(id)
  local found = ghosts.has_live(id)
  for _, index in ipairs(INDEXES) do found = found or score(index, id) end
  for _, column in ipairs(OWNED) do found = found or redis.call("HEXISTS", queue.key[column], id) == 1 end
  if not found then return "" end
  operate.remove_remains(id)
  return "orphan"
end

-- A lease text and its end belong together. Where the end is lost the holder gets a whole lease more to renew it; where
-- the text is, the lease ends now, and the next take or sweep recovers it.
local function mend_lease(id, text, stop, waits)
  if waits then
    move.unlease(id)
    return "stale"
  end
  local held = text and lease.parse(text)
  if held and stop or not held and tonumber(stop or "inf") <= queue.ms then return "" end
  local ends = held and queue.ms + tonumber(queue.root.lease) or queue.ms
  wake.due("leased", ends)
  plan.add("ZADD", queue.key.leased, number.text(ends), id)
  return "lease"
end

local function mend_waiting(job)
  local id = job.id
  local text, stop = redis.call("HGET", queue.key.lease, id), score("leased", id)
  local whole = text and stop and lease.parse(text)
  if whole then return "" end
  local waits = score("sched", id) or score("ranked", id) or ghosts.has_live(id)
  if text or stop then return mend_lease(id, text, stop, waits) end
  if waits or redis.call("HEXISTS", queue.key.body, id) == 0 then return "" end
  move.to_tail(job)
  return "ready"
end

-- The score in the group of a state; a foreign type in its place is not for us to mend.
local function group_score(state, job, stands)
  local key = KEYS[1] .. ":group:" .. state .. ":" .. job.fixed.name
  local found = redis.call("TYPE", key)["ok"]
  if found ~= "zset" and found ~= "none" then return stands end
  return redis.call("ZSCORE", key, job.id)
end

local function mend_terminal(job)
  local state = groups.state[job.letter]
  local stands = score(state, job.id)
  if stands and stands == group_score(state, job, stands) then return "" end
  local at = stands and math.floor(tonumber(stands)) or tonumber(job.last and job.last.at) or queue.ms
  removal.unfinish(job)
  move.finish(job, job.letter, at)
  return "index"
end

local function mend(id)
  if redis.call("HEXISTS", queue.key.broken, id) == 1 then return "" end
  local text = redis.call("HGET", queue.key.head, id)
  if not text then return orphan(id) end
  local job = head.parse(id, text)
  if not job then return "" end
  if job.waiting then return mend_waiting(job) end
  return mend_terminal(job)
end

local answer = {}
for i = queue.first, #ARGV do answer[#answer + 1] = mend(ARGV[i]) end
queue.remember(pack.list(answer))
move.done()
return answer
