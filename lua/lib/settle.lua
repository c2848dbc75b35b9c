-- settle: ends leases by ack, fail, release or quarantine, or begins them, each against its own token
--
-- Arguments per settlement: what, id, token, and after a what with "+" data. What it is:
--   a             ack; "a+" with a result, its bytes as the data
--   f+ wait       fail; wait: ms until the retry, "" for the policy's, "!" for no further attempt; data: detail
--   r wait        release; wait: ms, or "" for none
--   q+            quarantine; data: detail
--   b             begin: marks the lease of a job that waited in its worker as started; ends nothing
-- Answers, one word each: A acknowledged, B already acknowledged, G gone, L lease lost, ! damaged;
--   b begun, r ready, s<due> scheduled, d dead, x cancelled, q quarantined.
local queue = require("lib.queue")
local plan = require("lib.plan")
local head = require("lib.head")
local lease = require("lib.lease")
local move = require("lib.move")
local success = require("lib.success")
local endings = lazy("lib.endings")

local M = {}

local find, match, sub = string.find, string.match, string.sub

local FEW = 4               -- for which asking each is no dearer

-- The settlements that start at argument `from`, as columns.
function M.arguments(from)
  local whats, ids, tokens, data = {}, {}, {}, {}
  local at, n = from, 0
  while at <= #ARGV do
    n = n + 1
    whats[n], ids[n], tokens[n] = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    at = at + 3
    if whats[n] ~= "a" and find(whats[n], "+", 1, true) then
      data[n] = ARGV[at]
      at = at + 1
    end
  end
  return { whats = whats, ids = ids, tokens = tokens, data = data }
end

-- When each lease ends; nil when every lease of the queue ends later than now, so that nobody has to ask.
local function ends_of(ids)
  local leased = queue.key.leased
  local all_ahead = #ids > FEW and redis.call("ZCOUNT", leased, "-inf", queue.now) == 0
    and redis.call("ZCARD", leased) == redis.call("HLEN", queue.key.lease)
  return not all_ahead and redis.call("ZMSCORE", leased, unpack(ids)) or nil
end

local function read(ids)
  local leases = redis.call("HMGET", queue.key.lease, unpack(ids))
  local heads = redis.call("HMGET", queue.key.head, unpack(ids))
  local stops = ends_of(ids)
  plan.proven[queue.key.leased] = true
  plan.sizes[queue.key.lease], plan.sizes[queue.key.head] = math.huge, math.huge
  return leases, heads, stops
end

-- Ends or begins a live lease in any other way; returns the answer, nil for a token that does not hold it.
local function settle(settled, job, what, token, data, lease_text)
  if not (job.waiting and lease.attempt(lease_text, token)) then return nil end
  local verb, wait = match(what, "^(%a)%+?(.*)$")
  local answer = endings.settle(job, verb, wait, data, lease.parse(lease_text))
  if verb ~= "b" then settled[job.id] = not job.gone and job.last end
  return answer
end

-- The answer to whatever is not a first success; `lease_text` is nil when the job is not leased now.
local function other(settled, id, what, token, data, head_text, lease_text)
  local last = settled[id]
  if last == nil then
    local job = head_text and head.parse(id, head_text)
    if not job then return head_text and "!" or "G" end
    success.plan()
    local answer = lease_text and settle(settled, job, what, token, data, lease_text)
    if answer then return answer end
    last = job.last
  elseif last == false then
    return "G"
  end
  return endings.again(last, sub(what, 1, 1), token)
end

-- Settles the columns of arguments in their order; returns the answers, joined by commas. `remember`, if given, plans
-- that a repeat of the call gets them.
function M.run(given, remember)
  local answers, settled = {}, {}   -- settled: id -> its settlement of this call (false: gone), or the token of its ack
  local whats, ids, tokens, data = given.whats, given.ids, given.tokens, given.data
  if #ids == 0 then return "" end
  local leases, heads, stops = read(ids)
  for i = 1, #ids do
    local id, what, head_text, held, left = ids[i], whats[i], heads[i], leases[i], nil
    if not head_text or stops and not (stops[i] and tonumber(stops[i]) > queue.ms) then held = nil end
    if held and (what == "a" or what == "a+") and settled[id] == nil then
      left = success.add(id, tokens[i], data[i], head_text, held)
    end
    if left == nil then
      answers[i] = other(settled, id, what, tokens[i], data[i], head_text, held)
    else
      answers[i], settled[id] = "A", left
    end
  end
  success.plan()
  answers = table.concat(answers, ",")
  if remember then remember(answers) end
  move.done()
  return answers
end

return M
