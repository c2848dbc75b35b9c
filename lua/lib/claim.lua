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

local M = { width = 6 }

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

local function metas_of(ids)
  if #ids == 0 or not queue.here.meta then return {} end
  return redis.call("HMGET", queue.key.meta, unpack(ids))
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
  return reply(first, text(stop), "0", "", ids, heads, redis.call("HMGET", queue.key.body, unpack(ids)), metas_of(ids))
end

-- Whether a candidate can be handed out; damaged ones are set aside.
local function usable(id, head_text)
  local job = head_text and head.parse(id, head_text)
  if job and job.waiting then return job end
  aside.set(id, head_text and "its head is damaged" or "it is ready but has no head")
end

-- How many of the peeked jobs are dealt with in this pass, and which of them are good.
local function choose(peeked)
  local heads = #peeked.ids > 0 and redis.call("HMGET", queue.key.head, unpack(peeked.ids)) or {}
  local jobs, texts, bytes = {}, {}, 0
  for i = 1, #peeked.ids do
    local job = usable(peeked.ids[i], heads[i])
    if job then
      bytes = bytes + (job.fixed.size or SMALL)
      if bytes > BYTES and #jobs > 0 and job.fixed.size then return i - 1, jobs, texts, true end
      jobs[#jobs + 1], texts[#texts + 1] = job, heads[i]
    end
  end
  return #peeked.ids, jobs, texts, false
end

local function grant(want, jobs, first, stop)
  local leases, leased = plan.of("HSET", queue.key.lease), plan.of("ZADD", queue.key.leased)
  local n = 0
  for i = 1, #jobs do
    local token = text(first + i - 1) .. "-" .. want.nonce
    leases[n + 1] = jobs[i].id
    local mark = i <= want.starts and "s" or "u"
    leases[n + 2] = lease.text(token, text(jobs[i].attempts + 1), mark, queue.now, want.worker)
    leased[n + 1] = stop
    leased[n + 2] = jobs[i].id
    n = n + 2
  end
end

-- Leaves out jobs whose bytes are gone.
local function with_bodies(jobs, heads)
  local ids = {}
  for i = 1, #jobs do ids[i] = jobs[i].id end
  local bodies = #ids > 0 and redis.call("HMGET", queue.key.body, unpack(ids)) or {}
  local whole = true
  for i = 1, #ids do whole = whole and bodies[i] end
  if whole then return ids, jobs, heads, bodies end
  local good = { {}, {}, {}, {} }
  for i = 1, #ids do
    if bodies[i] then
      local n = #good[1] + 1
      good[1][n], good[2][n], good[3][n], good[4][n] = ids[i], jobs[i], heads[i], bodies[i]
    else
      aside.set(ids[i], "its payload is gone")
    end
  end
  return good[1], good[2], good[3], good[4]
end

-- Runs one bounded pass; `answered` is put in front of what the caller's slot keeps.
function M.run(at, answered)
  local want = arguments(at)
  if queue.root.paused == "1" or want.limit == 0 then return reply("0", "0", "0", "", {}, {}, {}, {}) end
  local bound = math.max(want.limit, LAPSES)
  wake.hush(true)
  local full = recover.lapses(bound) == bound
  full = recover.due(bound) == bound or full

  local peeked = ready.peek(want.limit)
  local count, candidates, texts, heavy = choose(peeked)
  local ids, jobs, heads, bodies = with_bodies(candidates, texts)
  local first, stop = stamp.next(want.floor), text(queue.ms + want.lease)
  ready.pop(peeked, count)
  if #jobs > 0 then
    grant(want, jobs, first, stop)
    wake.due("leased", queue.ms + want.lease)
    plan.add("HSET", KEYS[1], "stamp", text(first + #jobs - 1), queue.slot(),
      queue.remembered(answered .. text(first) .. "|" .. pack.list(ids), queue.ms + want.lease))
  end
  plan.commit()
  wake.hush(false)
  local left = heavy or #peeked.ids == want.limit
  if left and ready.waiting() then
    wake.work()
    plan.commit()
  end
  local more = #jobs < want.limit and not heavy and (full or peeked.bounded or #jobs < #peeked.ids)
  return reply(text(first), stop, more and "1" or "0", #jobs == 0 and recover.next() or "", ids, heads, bodies,
    metas_of(ids))
end

return M
