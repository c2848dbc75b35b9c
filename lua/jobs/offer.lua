-- jobs/offer: puts new jobs in
-- FLAGS  -
-- KEYS   root: head body meta lease sched ready ranked ghost bell seen
-- ARGV   now slot number, width, then per job as many of these as the width says (3 or 5): id body tail due meta
--        due: "" now, "+" ms of delay, "@" ms since 1970
-- REPLY  one letter per job: r ready, s scheduled; a duplicate answers in upper case with the first job's state
--        (R S L C D X Q), M when only the memory of its id is left
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  (new) -> ready; (new) -> scheduled
local queue = require("lib.queue")
local plan = require("lib.plan")
local head = require("lib.head")
local ready = require("lib.ready")
local wake = lazy("lib.wake")
local number = lazy("lib.number")

local width = tonumber(ARGV[queue.first])
local start = queue.first + 1
local letters, inserted = {}, {}
local soonest

local function standing(id, text)
  local letter = string.upper(string.sub(text, 1, 1))
  if letter ~= "W" then return letter end
  if redis.call("HEXISTS", queue.key.lease, id) == 1 then return "L" end
  return redis.call("ZSCORE", queue.key.sched, id) and "S" or "R"
end

-- When an id whose record is gone was remembered, or false.
local function remembered(id)
  local at = queue.here.seen and redis.call("ZSCORE", queue.key.seen, id)
  return at and tonumber(at)
end

local function due_at(due)
  local mark = string.sub(due, 1, 1)
  if mark == "+" then return queue.ms + tonumber(string.sub(due, 2)) end
  return tonumber(string.sub(due, 2))
end

-- The due time of the job whose arguments start at `at`, when that is ahead.
local function later(at)
  local due = ARGV[at + 3] ~= "" and due_at(ARGV[at + 3])
  return due and due > queue.ms and due or nil
end

local function schedule(id, due)
  plan.add("ZADD", queue.key.sched, number.text(due), id)
  soonest = math.min(soonest or due, due)
  return "s"
end

-- Whether an id that its producer chose is free, as far as the memory of ids goes.
local function is_free(id)
  local since = remembered(id)
  if since and since > queue.ms - tonumber(queue.root.dedup) then return false end
  if since then plan.add("ZREM", queue.key.seen, id) end
  return true
end

-- Puts in the job whose arguments start at `at`, into the columns `heads` and `bodies`.
local function insert(at, id, heads, bodies)
  local tail = ARGV[at + 2]
  local fixed = head.tail(tail)
  if fixed.custom and not is_free(id) then return "M" end
  local due = width == 5 and later(at)
  local n = #heads
  heads[n + 1], bodies[n + 1] = id, id
  heads[n + 2] = (fixed.size and "W;" or "w;") .. queue.now .. (due and "d;" or ";") .. tail
  bodies[n + 2] = ARGV[at + 1]
  if fixed.meta then plan.add("HSET", queue.key.meta, id, ARGV[at + 4]) end
  inserted[id] = due and schedule(id, due) or "r"
  if not due then ready.to_tail(id, fixed) end
  return inserted[id]
end

local function ids()
  local found, n = {}, 0
  for at = start, #ARGV, width do
    n = n + 1
    found[n] = ARGV[at]
  end
  return found
end

return queue.run(function()
  local refusal = queue.open({}, { "paused", "first", "ghosts" })
  if refusal then return refusal end
  if queue.answer then return queue.answer end
  local wanted = ids()
  local texts = redis.call("HMGET", queue.key.head, unpack(wanted))
  local heads, bodies = plan.of("HSET", queue.key.head), plan.of("HSET", queue.key.body)
  for i = 1, #wanted do
    local id = wanted[i]
    if inserted[id] then
      letters[i] = string.upper(inserted[id])
    elseif texts[i] then
      letters[i] = standing(id, texts[i])
    else
      letters[i] = insert(start + (i - 1) * width, id, heads, bodies)
    end
  end
  if soonest then wake.due("sched", soonest) end
  ready.enter()
  local answer = table.concat(letters)
  queue.remember(answer)
  plan.commit()
  return answer
end)
