-- record: everything that the columns hold of some jobs, column by column
local queue = require("lib.queue")

local M = {
  columns = { "head", "body", "meta", "lease", "leased", "sched", "broken", "completed", "dead", "cancelled",
    "quarantined", "result", "error", "progress" },
  fields = { "max_attempts", "timeout" },
}

local function column(command, name, ids)
  if #ids == 0 or not queue.here[name] then return {} end
  return redis.call(command, queue.key[name], unpack(ids))
end

-- now, policy max attempts, policy timeout, ids, heads, bodies, metas, leases, lease ends, due times, results, errors,
-- progress, broken, and the finish scores of the four terminal states; a column that no job has is empty.
function M.read(ids)
  return { queue.now, queue.root.max_attempts, queue.root.timeout, ids,
    column("HMGET", "head", ids), column("HMGET", "body", ids), column("HMGET", "meta", ids),
    column("HMGET", "lease", ids), column("ZMSCORE", "leased", ids), column("ZMSCORE", "sched", ids),
    column("HMGET", "result", ids), column("HMGET", "error", ids),
    column("HMGET", "progress", ids), column("HMGET", "broken", ids),
    column("ZMSCORE", "completed", ids), column("ZMSCORE", "dead", ids), column("ZMSCORE", "cancelled", ids),
    column("ZMSCORE", "quarantined", ids) }
end

return M
