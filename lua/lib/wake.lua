-- wake: the bell that idle takers block on
--
-- One element in the list is enough: whoever pops it takes, and rings again when work is left. An idle taker looks by
-- itself every two seconds, so only what is due before that, and earlier than all it could have seen, has to ring.
local queue = require("lib.queue")
local plan = require("lib.plan")

local M = {}

local LOOK_MS = 2000
local rung = false
local hushed = false

-- While hushed, work put in order by a take does not ring: that take is about to hand it out.
function M.hush(on)
  hushed = on
end

function M.ring()
  if rung or queue.here.bell or queue.root.paused == "1" then return end
  rung = true
  plan.add("RPUSH", queue.key.bell, "1")
end

-- Rings for work that is ready now.
function M.work()
  if not hushed then M.ring() end
end

-- Rings when `due` is near and earlier than the head of `index` (an opened column).
function M.due(index, due)
  if due >= queue.ms + LOOK_MS then return end
  local head = redis.call("ZRANGE", queue.key[index], 0, 0, "WITHSCORES")
  if not head[2] or due < tonumber(head[2]) then M.ring() end
end

return M
