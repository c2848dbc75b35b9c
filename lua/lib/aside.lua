-- aside: damaged jobs are set aside, out of the way of the others, and named in hash `broken` until removed
local queue = require("lib.queue")
local plan = require("lib.plan")

local M = {}

-- The caller takes `id` out of the index it was met in; what is left of its columns stays for inspection.
function M.set(id, reason)
  plan.add("HSET", queue.key.broken, id, reason)
end

return M
