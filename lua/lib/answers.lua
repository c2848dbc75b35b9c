-- answers: what the callers were answered last, in the root hash; goes when nobody repeats the call any more
local queue = require("lib.queue")
local plan = require("lib.plan")

local M = {}

-- Removes what is past, in bounded steps. Needs the field scan.
function M.sweep()
  local found = redis.call("HSCAN", KEYS[1], queue.root.scan or "0", "MATCH", "s.*", "COUNT", 50)
  if found[1] ~= (queue.root.scan or "0") then plan.add("HSET", KEYS[1], "scan", found[1]) end
  for i = 1, #found[2], 2 do
    local slot, stop = found[2][i], tonumber(string.match(found[2][i + 1], "^%d+|(%d+)|"))
    -- this call's own slot is about to get its answer
    if slot ~= queue.slot() and (not stop or stop <= queue.ms) then plan.add("HDEL", KEYS[1], slot) end
  end
end

return M
