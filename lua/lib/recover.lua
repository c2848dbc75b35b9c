-- recover: bounded recovery: leases that ran out, and scheduled jobs that are due
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local head = require("lib.head")
local lease = lazy("lib.lease")
local ready = require("lib.ready")
local retry = lazy("lib.retry")
local detail = lazy("lib.detail")
local ledger = lazy("lib.ledger")
local move = require("lib.move")
local aside = lazy("lib.aside")

local M = {}

local function lapse_detail()
  return detail.text("LeaseLapsed", "the lease ran out before the job was settled")
end

-- A leased entry whose lease text is gone: an attempt of nobody known.
local function unknown(job)
  return { token = "", attempt = job.attempts + 1, started = true, cancel = false, taken = "0", worker = "" }
end

function M.max_attempts(job)
  return job.fixed.max or tonumber(queue.root.max_attempts)
end

-- A lease that was never started goes back as if it had not been given out.
local function unstarted(job, held, stop)
  local letter = held.cancel and "x" or "r"
  ledger.settled(job, "u", held, stop, letter)
  if held.cancel then
    job.attempts = held.attempt
    move.finish(job, "x", stop)
  else
    move.to_head(job)
  end
end

local function lapsed(job, held, stop)
  job.attempts = held.attempt
  if held.cancel then
    ledger.settled(job, "l", held, stop, "x")
    move.finish(job, "x", stop)
  elseif held.attempt >= M.max_attempts(job) then
    ledger.settled(job, "l", held, stop, "d")
    ledger.failure(job, lapse_detail())
    move.finish(job, "d", stop)
  else
    local wait = retry.delay(queue.root.backoff, job.id, held.attempt)
    ledger.settled(job, "l", held, stop, wait > 0 and "s" or "r", wait > 0 and stop + wait or nil)
    ledger.failure(job, lapse_detail())
    if wait > 0 then move.schedule(job, stop + wait) else move.to_tail(job) end
  end
end

local function recover_one(id, stop, lease_text, head_text)
  local job = head_text and head.parse(id, head_text)
  local held = lease_text and lease.parse(lease_text)
  move.unlease(id)
  if not job or not job.waiting then
    aside.set(id, head_text and "its head is damaged" or "it is leased but has no head")
    return
  end
  held = held or unknown(job)
  if held.started then lapsed(job, held, stop) else unstarted(job, held, stop) end
end

-- Settles up to `limit` leases that ended at or before now; returns how many there were.
function M.lapses(limit)
  if not queue.here.leased then return 0 end
  local found = redis.call("ZRANGE", queue.key.leased, "-inf", queue.now, "BYSCORE", "LIMIT", 0, limit, "WITHSCORES")
  if #found == 0 then return 0 end
  local ids = {}
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  local leases = redis.call("HMGET", queue.key.lease, unpack(ids))
  local heads = redis.call("HMGET", queue.key.head, unpack(ids))
  for i = 1, #ids do
    recover_one(ids[i], tonumber(found[i * 2]), leases[i], heads[i])
  end
  move.done()
  return #ids
end

-- Moves up to `limit` due jobs to the ready tail, in due order; returns how many there were.
function M.due(limit)
  local ids = redis.call("ZRANGE", queue.key.sched, "-inf", queue.now, "BYSCORE", "LIMIT", 0, limit)
  if #ids == 0 then return 0 end
  local heads = redis.call("HMGET", queue.key.head, unpack(ids))
  local leave = plan.of("ZREM", queue.key.sched)
  for i = 1, #ids do
    leave[i] = ids[i]
    local job = heads[i] and head.parse(ids[i], heads[i])
    if job and job.waiting then
      ready.to_tail(job)
    else
      aside.set(ids[i], heads[i] and "its head is damaged" or "it is scheduled but has no head")
    end
  end
  move.done()
  return #ids
end

-- When the next lease ends or the next job is due, as text; "" when there is neither.
function M.next()
  local soonest
  for _, index in ipairs({ "sched", "leased" }) do
    local first = redis.call("ZRANGE", queue.key[index], 0, 0, "WITHSCORES")
    local at = tonumber(first[2])
    if at and (not soonest or at < soonest) then soonest = at end
  end
  return soonest and number.text(soonest) or ""
end

return M
