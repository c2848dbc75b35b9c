-- lapse: leases that ran out
local queue = require("lib.queue")
local head = require("lib.head")
local lease = require("lib.lease")
local retry = lazy("lib.retry")
local detail = lazy("lib.detail")
local ledger = require("lib.ledger")
local endings = require("lib.endings")
local move = require("lib.move")
local aside = lazy("lib.aside")

local M = {}

local function lapse_detail()
  return detail.text("LeaseLapsed", "the lease ran out before the job was settled")
end

-- A leased entry whose lease text is gone: an attempt of nobody known.
local function unknown(job)
  return lease.parse(lease.text("", tostring(job.attempts + 1), "s", "0", ""))
end

-- A lease that was never started goes back as if it had not been given out.
local function unstarted(job, held, stop)
  ledger.settled(job, "u", held, stop, held.cancel and "x" or "r")
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
  elseif held.attempt >= endings.max_attempts(job) then
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

local function recover(id, stop, lease_text, head_text)
  local job = head_text and head.parse(id, head_text)
  move.unlease(id)
  if not job or not job.waiting then
    aside.set(id, head_text and "its head is damaged" or "it is leased but has no head")
    return
  end
  local held = lease_text and lease.parse(lease_text) or unknown(job)
  if held.started then lapsed(job, held, stop) else unstarted(job, held, stop) end
end

-- Settles the leases of `found`, which alternates ids and lease ends.
function M.all(found)
  local ids = {}
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  local leases = redis.call("HMGET", queue.key.lease, unpack(ids))
  local heads = redis.call("HMGET", queue.key.head, unpack(ids))
  for i = 1, #ids do
    recover(ids[i], tonumber(found[i * 2]), leases[i], heads[i])
  end
  move.done()
end

return M
