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
local wake = require("lib.wake")
local number = require("lib.number")

local WIDTH = 5

local refusal = queue.open({ "head", "body", "meta", "lease", "sched", "ready", "ranked", "ghost", "bell", "seen" },
  { "paused", "first", "rank_tail", "rank_head", "dedup" })
if refusal then return refusal end
if queue.answer then return queue.answer end

local count = (#ARGV - queue.first + 1) / WIDTH
local ids = {}
for i = 1, count do ids[i] = ARGV[queue.first + (i - 1) * WIDTH] end
local heads = queue.here.head and redis.call("HMGET", queue.key.head, unpack(ids)) or {}
local seen = queue.here.seen and redis.call("ZMSCORE", queue.key.seen, unpack(ids)) or {}
local remembered_from = queue.ms - tonumber(queue.root.dedup)

local function standing(id, text)
  local letter = string.upper(string.sub(text, 1, 1))
  if letter ~= "W" then return letter end
  if queue.here.lease and redis.call("HEXISTS", queue.key.lease, id) == 1 then return "L" end
  return redis.call("ZSCORE", queue.key.sched, id) and "S" or "R"
end

local function due_at(due)
  local mark = string.sub(due, 1, 1)
  if mark == "+" then return queue.ms + tonumber(string.sub(due, 2)) end
  if mark == "@" then return tonumber(string.sub(due, 2)) end
  return 0
end

local new_heads, new_bodies = plan.of("HSET", queue.key.head), plan.of("HSET", queue.key.body)
local letters, inserted = {}, {}
local soonest

local function insert(i, id, at)
  local due, fixed = due_at(ARGV[at + 3]), head.tail(ARGV[at + 2])
  local scheduled = due > queue.ms
  local n = #new_heads
  new_heads[n + 1] = id
  new_heads[n + 2] = (fixed.size and "W;" or "w;") .. queue.now .. (scheduled and "d;" or ";") .. ARGV[at + 2]
  new_bodies[n + 1], new_bodies[n + 2] = id, ARGV[at + 1]
  if ARGV[at + 4] ~= "" then plan.add("HSET", queue.key.meta, id, ARGV[at + 4]) end
  if seen[i] then plan.add("ZREM", queue.key.seen, id) end
  if scheduled then
    plan.add("ZADD", queue.key.sched, number.text(due), id)
    soonest = math.min(soonest or due, due)
  else
    ready.to_tail({ id = id, fixed = fixed })
  end
  letters[i] = scheduled and "s" or "r"
  inserted[id] = string.upper(letters[i])
end

for i = 1, count do
  local at, id = queue.first + (i - 1) * WIDTH, ids[i]
  if inserted[id] then
    letters[i] = inserted[id]
  elseif heads[i] then
    letters[i] = standing(id, heads[i])
  elseif seen[i] and tonumber(seen[i]) > remembered_from then
    letters[i] = "M"
  else
    insert(i, id, at)
  end
end
if soonest then wake.due("sched", soonest) end
ready.enter()
local answer = table.concat(letters)
plan.add("HSET", KEYS[1], queue.slot(), queue.remembered(answer))
plan.commit()
return answer
