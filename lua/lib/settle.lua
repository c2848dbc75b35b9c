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
local queue = require("lib.queue")
local plan = require("lib.plan")
local head = require("lib.head")
local lease = require("lib.lease")
local move = require("lib.move")
local endings = lazy("lib.endings")

local M = {}

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
  local leases = redis.call("HMGET", queue.key.lease, unpack(ids))
  local heads = redis.call("HMGET", queue.key.head, unpack(ids))
  local stops = redis.call("ZMSCORE", queue.key.leased, unpack(ids))
  plan.proven[queue.key.lease], plan.proven[queue.key.head], plan.proven[queue.key.leased] = true, true, true
  return ids, leases, heads, stops
end

-- The plain end of a first attempt, as most jobs have it.
local function complete(job, attempt, lease_text, item)
  job.attempts = tonumber(attempt)
  if item[4] == "+" then
    plan.add("HSET", queue.filled("result"), job.id, item[5])
    job.result = item[5]
  end
  job.last = { verb = "a", token = item[3] }
  move.unlease(job.id)
  move.complete(job, attempt, lease_text)
  return "A"
end

local function settle(job, item, lease_text)
  local attempt = lease.attempt(lease_text, item[3])
  if not attempt then return nil end
  if item[1] == "a" and job.mark == "" and job.folded == 0 then return complete(job, attempt, lease_text, item) end
  return endings.settle(job, item, lease.parse(lease_text))
end

-- Settles the items in their order; returns their answers, joined by commas. `remember` tells what a repeat of the call
-- is to be answered with.
function M.run(items, remember)
  local answers, settled = {}, {}
  if #items == 0 then return "" end
  local ids, leases, heads, stops = read(items)
  for i = 1, #items do
    local id, item = ids[i], items[i]
    local job, answer = settled[id], nil
    if job == nil then
      job = heads[i] and head.parse(id, heads[i])
      local stop = stops[i] and tonumber(stops[i])
      if job and job.waiting and leases[i] and stop and stop > queue.ms then
        answer = settle(job, item, leases[i])
        if answer and answer ~= "b" then settled[id] = not job.gone and job end
      end
    end
    if answer then
      answers[i] = answer
    elseif job then
      answers[i] = endings.again(job, item)
    elseif settled[id] == nil and heads[i] then
      answers[i] = "!"
    else
      answers[i] = "G"
    end
  end
  answers = table.concat(answers, ",")
  plan.add("HSET", KEYS[1], queue.slot(), remember(answers))
  move.done()
  return answers
end

return M
