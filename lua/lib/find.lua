-- find: one job by its id, or the refusal that says what is damaged
local queue = require("lib.queue")
local head = require("lib.head")
local lease = require("lib.lease")
local refuse = require("lib.refuse")

local M = {}

local function damaged(id, part)
  return refuse.word("CORRUPT", "job " .. id .. " has a damaged " .. part
    .. ": see what is left with check, then remove it")
end

-- Returns refusal, job, held: job is nil for an unknown id, held unless it is leased.
function M.job(id)
  local text = redis.call("HGET", queue.key.head, id)
  if not text then return nil, nil, nil end
  local job = head.parse(id, text)
  if not job then return damaged(id, "head") end
  local held_text = job.waiting and redis.call("HGET", queue.key.lease, id)
  local held = held_text and lease.parse(held_text)
  if held_text and not held then return damaged(id, "lease") end
  return nil, job, held or nil
end

return M
