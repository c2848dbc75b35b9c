-- claim: recovers, promotes, and leases up to `limit` ready jobs
--
-- Arguments: nonce, floor, limit, lease ms ("" for the policy's), how many of them start at once, worker.
-- Reply: now, lease end, first stamp, policy max attempts, policy timeout, more, next, ids, heads, bodies, metas.
--   The token of the i-th job is (first stamp + i - 1) "-" nonce. A job that a repeated call no longer holds has false
--   for its head. `more`: the pass was bounded, so nothing found is no proof that nothing is there. `next`: when
--   something becomes takeable by time alone, if nothing was taken.
local number = require("lib.number")
local stamp = require("lib.stamp")
local queue = require("lib.queue")
local plan = require("lib.plan")
local head = require("lib.head")
local lease = require("lib.lease")
local pack = require("lib.pack")
local ready = require("lib.ready")
local wake = require("lib.wake")
local recover = require("lib.recover")
local aside = lazy("lib.aside")

local M = {
  width = 6,
  fields = { "stamp", "paused", "first", "ghosts", "rank_tail", "lease", "timeout", "max_attempts" },
}

local BYTES = 8 * 1024 * 1024
local SMALL = 4096          -- what a payload without a stored size counts for
local LAPSES = 100

local text = number.text

local function arguments(at)
  return { nonce = ARGV[at], floor = ARGV[at + 1], limit = tonumber(ARGV[at + 2]),
    lease = tonumber(ARGV[at + 3]) or tonumber(queue.root.lease), starts = tonumber(ARGV[at + 4]),
    worker = ARGV[at + 5] }
end

local function reply(first, stop, more, next, ids, heads, bodies, metas)
  return { queue.now, stop, first, queue.root.max_attempts, queue.root.timeout, more, next, ids, heads, bodies, metas }
end

local function column(name, ids)
  return #ids > 0 and redis.call("HMGET", queue.key[name], unpack(ids)) or {}
end

-- Fails on what a take reads, for a call that writes before it.
function M.prove()
  redis.call("ZCARD", queue.key.sched)
  redis.call("ZCARD", queue.key.ranked)
  redis.call("LLEN", queue.key.ready)
  redis.call("HLEN", queue.key.body)
  redis.call("HLEN", queue.key.meta)
  plan.proven[queue.key.body] = true
end

-- The jobs that the first run of this call leased, as far as it still holds them.
function M.again(at, answer)
  local want = arguments(at)
  local first, start = string.match(answer, "^(%d+)|()")
  local ids = pack.unlist(answer, start)
  local leases = redis.call("HMGET", queue.key.lease, unpack(ids))
  local stops = redis.call("ZMSCORE", queue.key.leased, unpack(ids))
  local stop, held = nil, {}
  for i = 1, #ids do
    local token = text(first + i - 1) .. "-" .. want.nonce
    local ends = tonumber(stops[i])
    held[i] = leases[i] and ends and ends > queue.ms and lease.has(leases[i], token)
    if held[i] then stop = math.min(stop or ends, ends) end
  end
  if not stop then return nil end
  local heads = redis.call("HMGET", queue.key.head, unpack(ids))
  for i = 1, #ids do heads[i] = held[i] and heads[i] end
  local metas = queue.here.meta and column("meta", ids) or {}
  return reply(first, text(stop), "0", "", ids, heads, column("body", ids), metas)
end

-- What the producer fixed of a candidate, and its attempts so far; a damaged one is set aside.
local function usable(id, head_text)
  local fixed = head_text and head.unsettled(head_text)
  if fixed then return fixed, 0 end
  local job = head_text and head.parse(id, head_text)
  if job and job.waiting then return job.fixed, job.attempts end
  aside.set(id, head_text and "its head is damaged" or "it is ready but has no head")
end

-- How many of the peeked jobs are dealt with in this pass; the good ones of them, as columns; whether bytes ended it.
local function choose(peeked)
  local texts = column("head", peeked.ids)
  local jobs, n, bytes = { ids = {}, heads = {}, attempts = {}, meta = false }, 0, 0
  for i = 1, #peeked.ids do
    local id = peeked.ids[i]
    local fixed, attempts = usable(id, texts[i])
    if fixed then
      bytes = bytes + (fixed.size or SMALL)
      if bytes > BYTES and n > 0 and fixed.size then return i - 1, jobs, true end
      n = n + 1
      jobs.ids[n], jobs.heads[n], jobs.attempts[n] = id, texts[i], attempts
      jobs.meta = jobs.meta or fixed.meta
    end
  end
  return #peeked.ids, jobs, false
end

-- Leaves out jobs whose bytes are gone.
local function whole(jobs)
  local good = { ids = {}, heads = {}, attempts = {}, bodies = {}, meta = jobs.meta }
  for i = 1, #jobs.ids do
    if jobs.bodies[i] then
      for _, each in ipairs({ "ids", "heads", "attempts", "bodies" }) do table.insert(good[each], jobs[each][i]) end
    else
      aside.set(jobs.ids[i], "its payload is gone")
    end
  end
  return good
end

-- Reads what else is handed out with the jobs.
local function complete(jobs)
  jobs.bodies = column("body", jobs.ids)
  for i = 1, #jobs.ids do
    if not jobs.bodies[i] then
      jobs = whole(jobs)
      break
    end
  end
  jobs.metas = jobs.meta and column("meta", jobs.ids) or {}
  return jobs
end

local function grant(want, jobs, first, stop)
  local leases, leased = plan.of("HSET", queue.key.lease), plan.of("ZADD", queue.key.leased)
  local started = "," .. lease.tail("s", queue.now, want.worker)
  local waits = "," .. lease.tail("u", queue.now, want.worker)
  local nonce, n = "-" .. want.nonce .. ",", 0
  local ids, attempts = jobs.ids, jobs.attempts
  for i = 1, #ids do
    local id, tail = ids[i], i <= want.starts and started or waits
    leases[n + 1] = id
    leases[n + 2] = text(first + i - 1) .. nonce .. text(attempts[i] + 1) .. tail
    leased[n + 1], leased[n + 2] = stop, id
    n = n + 2
  end
end

-- Whether the arguments at `at` ask for jobs, and there may be some.
function M.takes(at)
  return queue.root.paused ~= "1" and ARGV[at + 2] ~= "0"
end

-- Runs one bounded pass; `answered` is put in front of what the caller's slot keeps.
function M.run(at, answered)
  local want = arguments(at)
  if not M.takes(at) then return reply("0", "0", "0", "", {}, {}, {}, {}) end
  local bound = math.max(want.limit, LAPSES)
  wake.hush(true)
  local lapsed, refusal = recover.lapses(bound)
  if refusal then return refusal end
  local promoted
  promoted, refusal = recover.due(bound)
  if refusal then return refusal end

  local peeked = ready.peek(want.limit)
  local count, chosen, heavy = choose(peeked)
  local jobs = complete(chosen)
  local got = #jobs.ids
  local first, stop = stamp.next(want.floor), text(queue.ms + want.lease)
  ready.pop(peeked, count)
  if got > 0 then
    grant(want, jobs, first, stop)
    wake.due("leased", queue.ms + want.lease)
    plan.add("HSET", KEYS[1], "stamp", text(first + got - 1))
    queue.remember(answered .. text(first) .. "|" .. pack.list(jobs.ids), queue.ms + want.lease)
  elseif #answered > 1 then
    queue.remember(answered)
  end
  wake.hush(false)
  if heavy or #peeked.ids == want.limit and ready.more_than(count) then wake.work() end
  plan.commit()
  local more = got < want.limit and not heavy
    and (lapsed == bound or promoted == bound or peeked.bounded or got < #peeked.ids)
  return reply(text(first), stop, more and "1" or "0", got == 0 and recover.next() or "",
    jobs.ids, jobs.heads, jobs.bodies, jobs.metas)
end

return M
