-- success: first attempts that succeed, as most jobs end: no more of them is parsed than that takes, and they are
-- planned column by column
local queue = require("lib.queue")
local plan = require("lib.plan")
local head = require("lib.head")
local lease = require("lib.lease")
local move = require("lib.move")
local retention = require("lib.retention")

local M = {}

local sub = string.sub
local ids, fixeds, heads, results = {}, {}, {}, {}      -- collected, and not yet planned
local same, stays           -- whether records of jobs with the same options stay

-- Collects a job that succeeds now, by the lease that it is held under, with its result if it has one. Returns its
-- token, or false when nothing will be kept of it; nil when it is another case.
function M.add(id, token, result, head_text, lease_text)
  local fixed = head.unsettled(head_text)
  local attempt = fixed and lease.attempt(lease_text, token)
  if not attempt then return nil end
  local n = #ids + 1
  ids[n], fixeds[n], results[n] = id, fixed, result
  heads[n] = "c" .. attempt .. "|a," .. queue.now .. ",c,," .. lease_text .. sub(head_text, 2)
  if fixed ~= same then same, stays = fixed, retention.keeps(fixed, "c") end
  return stays and token
end

local function store(keeps)
  local texts = plan.of("HSET", queue.key.head)
  local n = #texts
  for i = 1, #ids do
    if keeps[i] then
      texts[n + 1], texts[n + 2] = ids[i], heads[i]
      n = n + 2
      if results[i] then plan.add("HSET", queue.filled("result"), ids[i], results[i]) end
    end
  end
end

-- Plans what was collected. Whatever else ends a job in this call comes after it.
function M.plan()
  if #ids == 0 then return end
  move.end_leases(ids)
  store(retention.complete(ids, fixeds, results))
  ids, fixeds, heads, results = {}, {}, {}, {}
end

return M
