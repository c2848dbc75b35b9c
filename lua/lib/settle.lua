-- settle: ends leases by ack, fail, release or quarantine, or begins them, each against its own token
--
-- Arguments per settlement: verb, id, token, extra, data.
--   a ack         data: result bytes when extra is "+"
--   f fail        extra: retry wait in ms, "" for the policy's, "!" for no further attempt; data: detail
--   r release     extra: delay in ms or ""
--   q quarantine  data: detail
--   b begin       marks the lease of a job that waited in its worker as started; ends nothing
-- Answers, one word each: A acknowledged, B already acknowledged, G gone, L lease lost, ! damaged;
--   b begun, r ready, s<due> scheduled, d dead, x cancelled, q quarantined.
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local head = require("lib.head")
local lease = require("lib.lease")
local retry = lazy("lib.retry")
local ledger = require("lib.ledger")
local move = require("lib.move")
local recover = lazy("lib.recover")

local M = {}

local function acked(job, held, extra, data)
  if extra == "+" then
    plan.add("HSET", queue.filled("result"), job.id, data)
    job.result = data
  end
  ledger.settled(job, "a", held, queue.ms, "c")
  ledger.failure(job, nil)
  move.finish(job, "c", queue.ms)
  return "A"
end

local function ended(job, verb, held, letter)
  ledger.settled(job, verb, held, queue.ms, letter)
  move.finish(job, letter, queue.ms)
  return letter
end

local function waits(job, verb, held, wait)
  if wait > 0 then
    ledger.settled(job, verb, held, queue.ms, "s", queue.ms + wait)
    move.schedule(job, queue.ms + wait)
    return "s" .. number.text(queue.ms + wait)
  end
  ledger.settled(job, verb, held, queue.ms, "r")
  if verb == "r" then move.to_head(job) else move.to_tail(job) end
  return "r"
end

local function failed(job, held, extra, data)
  ledger.failure(job, data)
  if held.cancel then return ended(job, "f", held, "x") end
  if extra == "!" or held.attempt >= recover.max_attempts(job) then return ended(job, "f", held, "d") end
  return waits(job, "f", held, tonumber(extra) or retry.delay(queue.root.backoff, job.id, held.attempt))
end

local function released(job, held, extra)
  if held.cancel then return ended(job, "r", held, "x") end
  return waits(job, "r", held, tonumber(extra) or 0)
end

local function apply(job, held, verb, extra, data)
  move.unlease(job.id)
  if verb == "r" and not held.cancel then return released(job, held, extra) end
  job.attempts = held.attempt
  if verb == "a" then return acked(job, held, extra, data) end
  if verb == "f" then return failed(job, held, extra, data) end
  if verb == "r" then return released(job, held, extra) end
  ledger.failure(job, data)
  return ended(job, "q", held, "q")
end

local function begin(id, held)
  plan.add("HSET", queue.key.lease, id,
    lease.text(held.token, number.text(held.attempt), held.cancel and "S" or "s", held.taken, held.worker))
  return "b"
end

-- The answer to a token that holds no lease now: its own verb's first answer again, or lost.
local function repeated(job, verb, token)
  local last = job.last
  if not last or token == "" or last.token ~= token or last.verb ~= verb then return "L" end
  if verb == "a" then return "B" end
  return last.state .. last.due
end

-- The items that start at argument `from`: { verb, id, token, extra, data }.
function M.arguments(from)
  local items = {}
  for at = from, #ARGV, 5 do
    items[#items + 1] = { ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4] }
  end
  return items
end

local function read(items)
  local ids = {}
  for i = 1, #items do ids[i] = items[i][2] end
  return ids, redis.call("HMGET", queue.key.lease, unpack(ids)), redis.call("HMGET", queue.key.head, unpack(ids)),
    redis.call("ZMSCORE", queue.key.leased, unpack(ids))
end

-- Whether the job is leased under this token now.
local function holds(job, lease_text, stop, token)
  return job and job.waiting and lease_text and stop and stop > queue.ms and lease.has(lease_text, token)
    and lease.parse(lease_text)
end

-- Settles the items in their order; returns an answer for each.
function M.run(items)
  local answers, settled = {}, {}
  if #items == 0 then return answers end
  local ids, leases, heads, stops = read(items)
  for i = 1, #items do
    local id, verb, token = ids[i], items[i][1], items[i][3]
    local job, held = settled[id], nil
    if job == nil then
      job = heads[i] and head.parse(id, heads[i])
      held = holds(job, leases[i], tonumber(stops[i]), token)
    end
    if held and verb == "b" then
      answers[i] = begin(id, held)
    elseif held then
      answers[i] = apply(job, held, verb, items[i][4], items[i][5])
      settled[id] = not job.gone and job
    elseif job then
      answers[i] = repeated(job, verb, token)
    elseif settled[id] == nil and heads[i] then
      answers[i] = "!"
    else
      answers[i] = "G"
    end
  end
  move.done()
  return answers
end

return M
