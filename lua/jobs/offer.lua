-- jobs/offer: puts new jobs in
-- FLAGS  -
-- KEYS   root: head body meta lease sched ready ranked ghost bell seen
-- ARGV   now slot number, then per job: id body tail due meta
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

local WIDTH = 5

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

local function schedule(id, due)
  plan.add("ZADD", queue.key.sched, number.text(due), id)
  soonest = math.min(soonest or due, due)
  return "s"
end

local function insert(at, fixed)
  local id, due = ARGV[at], ARGV[at + 3] ~= "" and due_at(ARGV[at + 3])
  local scheduled = due and due > queue.ms
  local heads, bodies = plan.of("HSET", queue.key.head), plan.of("HSET", queue.key.body)
  local n = #heads
  heads[n + 1], bodies[n + 1] = id, id
  heads[n + 2] = (fixed.size and "W;" or "w;") .. queue.now .. (scheduled and "d;" or ";") .. ARGV[at + 2]
  bodies[n + 2] = ARGV[at + 1]
  if fixed.meta then plan.add("HSET", queue.key.meta, id, ARGV[at + 4]) end
  if scheduled then return schedule(id, due) end
  ready.to_tail(id, fixed)
  return "r"
end

-- The answer for the job whose arguments start at `at`; `text` is the head of one that has its id.
local function offer(at, text)
  local id = ARGV[at]
  if inserted[id] then return string.upper(inserted[id]) end
  if text then return standing(id, text) end
  local fixed = head.tail(ARGV[at + 2])
  if fixed.custom then
    local since = remembered(id)
    if since and since > queue.ms - tonumber(queue.root.dedup) then return "M" end
    if since then plan.add("ZREM", queue.key.seen, id) end
  end
  inserted[id] = insert(at, fixed)
  return inserted[id]
end

local function ids()
  local found = {}
  for at = queue.first, #ARGV, WIDTH do found[#found + 1] = ARGV[at] end
  return found
end

return queue.run(function()
  local refusal = queue.open({}, { "paused", "first", "ghosts" })
  if refusal then return refusal end
  if queue.answer then return queue.answer end
  local heads = redis.call("HMGET", queue.key.head, unpack(ids()))
  for i = 1, #heads do
    letters[i] = offer(queue.first + (i - 1) * WIDTH, heads[i])
  end
  if soonest then wake.due("sched", soonest) end
  ready.enter()
  local answer = table.concat(letters)
  plan.add("HSET", KEYS[1], queue.slot(), queue.remembered(answer))
  plan.commit()
  return answer
end)
