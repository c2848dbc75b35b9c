-- jobs/bulk: retries or purges a slice of the jobs of one state
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history progress waiters group:* w:*
-- ARGV   now slot number, retry or purge, state, "1" when a name is wanted, name, "1" when an error is wanted,
--        error type, limit, cursor
-- REPLY  how many were done, how many had vanished, the next cursor or ""
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  dead -> ready; quarantined -> ready; ready -> removed; scheduled -> removed; completed -> removed;
--        dead -> removed; cancelled -> removed; quarantined -> removed
local queue = require("lib.queue")
local head = require("lib.head")
local aside = lazy("lib.aside")
local groups = require("lib.groups")
local pack = require("lib.pack")
local detail = require("lib.detail")
local move = require("lib.move")
local touched = require("lib.touched")
local ready = require("lib.ready")
local operate = require("lib.operate")
local pages = require("lib.pages")

local refusal = queue.open(touched.columns, touched.fields)
if refusal then return refusal end
if queue.answer then return pack.unlist(queue.answer) end

local verb, state = ARGV[queue.first], ARGV[queue.first + 1]
local want = { named = ARGV[queue.first + 2] == "1", name = ARGV[queue.first + 3],
  erring = ARGV[queue.first + 4] == "1", kind = ARGV[queue.first + 5] }
local limit, cursor = tonumber(ARGV[queue.first + 6]), ARGV[queue.first + 7]
local damage = pages.damage(state, want.named and want.name)
if damage then return damage end
local done, vanished = 0, 0

-- Whether a job's head agrees with the index that it was met in.
local function belongs(job)
  if job.waiting then return state == "ready" or state == "scheduled" end
  return groups.state[job.letter] == state
end

local function matches(job)
  if want.named and job.fixed.name ~= want.name then return false end
  if not want.erring then return true end
  local failure = redis.call("HGET", queue.key.error, job.id)
  return failure and detail.kind(failure) == want.kind
end

local function act(job)
  if verb == "retry" then
    operate.retry(job)
  else
    operate.remove(job, true)
  end
  done = done + 1
end

-- A damaged job stays where it is; one that was popped is named, since its index no longer tells of it.
local function act_on(ids)
  local heads = #ids > 0 and redis.call("HMGET", queue.key.head, unpack(ids)) or {}
  for i = 1, #ids do
    local job = heads[i] and head.parse(ids[i], heads[i])
    if not heads[i] then vanished = vanished + 1 end
    if job and belongs(job) then
      if matches(job) then act(job) end
    elseif operate.popped then
      aside.set(ids[i], heads[i] and "its head is damaged" or "it is ready but has no head")
    end
  end
end

-- All ready jobs go: they are popped from the front, which leaves no dead entries.
local function front_of_ready()
  local peeked = ready.peek(limit)
  operate.popped = true
  act_on(peeked.ids)
  ready.pop(peeked, #peeked.ids)
  return (#peeked.ids == limit or peeked.bounded) and "front" or ""
end

local rest
if state == "ready" and not want.named and not want.erring then
  rest = front_of_ready()
else
  -- retried jobs line up as they died
  local slice = verb == "retry" and pages.oldest or pages.slice
  local ids, _, next = slice(state, want.named and want.name, cursor, limit)
  act_on(ids)
  rest = next or ""
end
local answer = { tostring(done), tostring(vanished), rest }
queue.remember(pack.list(answer))
move.done()
return answer
