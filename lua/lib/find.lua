-- find: one job by its id, or the refusal that says what is damaged
local queue = require("lib.queue")
local head = require("lib.head")
local lease = require("lib.lease")
local refuse = lazy("lib.refuse")

local M = {}

local function damaged(id, part)
  return refuse.word("CORRUPT", "job " .. id .. " has a damaged " .. part
    .. ": see what is left with check, then remove it")
end

-- Whether the lease of a job is whole, text and end, or not there at all; and the lease.
function M.lease(id)
  local text, stop = redis.call("HGET", queue.key.lease, id), redis.call("ZSCORE", queue.key.leased, id)
  local held = text and lease.parse(text) or nil
  return (held ~= nil) == (text ~= false) and (held ~= nil) == (stop ~= false), held
end

-- Returns refusal, job, held: job is nil for an unknown id, held unless it is leased.
function M.job(id)
  local text = redis.call("HGET", queue.key.head, id)
  if not text then return nil, nil, nil end
  local job = head.parse(id, text)
  if not job then return damaged(id, "head") end
  if not job.waiting then return nil, job, nil end
  local whole, held = M.lease(id)
  if not whole then return damaged(id, "lease") end
  return nil, job, held
end

return M
