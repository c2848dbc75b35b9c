-- ready: the jobs that a take hands out, in order
--
-- Priority 0 is a list, the cheapest index there is; other priorities share the zset `ranked` (lib/ranked). A job that
-- leaves the middle of the list (cancel, remove) leaves a dead entry behind (lib/ghosts). `first` in the root is the
-- position of the list's first entry: it goes up with each pop and down with each push at the head, so a position names
-- an entry for ever.
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local counter = require("lib.counter")
local wake = require("lib.wake")
local ranked = lazy("lib.ranked")
local ghosts = lazy("lib.ghosts")

local M = {}

local tail, front = {}, {}  -- jobs on their way in
local tail_ranked, front_ranked = {}, {}

function M.to_tail(id, fixed)
  if fixed.priority == 0 then
    tail[#tail + 1] = id
  else
    tail_ranked[#tail_ranked + 1] = { id, fixed.priority }
  end
end

function M.to_head(id, fixed)
  if fixed.priority == 0 then
    front[#front + 1] = id
  else
    front_ranked[#front_ranked + 1] = { id, fixed.priority }
  end
end

-- Plans the entries of all jobs on their way in; a block for the head keeps its order.
function M.enter()
  if #tail > 0 then
    if counter.get("ghosts") > 0 then
      ghosts.mark_live(tail, counter.get("first") + redis.call("LLEN", queue.key.ready))
    end
    plan.append("RPUSH", queue.key.ready, tail)
  end
  if #front > 0 then
    local push = plan.of("LPUSH", queue.key.ready)
    for i = #front, 1, -1 do push[#push + 1] = front[i] end
    counter.set("first", counter.get("first") - #front)
  end
  if #tail_ranked + #front_ranked > 0 then ranked.enter(tail_ranked, front_ranked) end
  if #tail + #front + #tail_ranked + #front_ranked > 0 then wake.work() end
  tail, front, tail_ranked, front_ranked = {}, {}, {}, {}
end

-- Takes a ready job out of its index.
function M.leave(id, fixed)
  if fixed.priority ~= 0 then
    plan.add("ZREM", queue.key.ranked, id)
  else
    ghosts.add(id)
  end
end

-- Whether there are more entries than `count` that are about to go.
function M.more_than(count)
  local listed = redis.call("LLEN", queue.key.ready)
  if listed > count then return true end
  return queue.root.rank_tail and listed + redis.call("ZCARD", queue.key.ranked) > count
end

-- Up to `limit` ready jobs in take order: `ids`; `upto[i]` list entries to pop for it (0: it is ranked); `slice` the
-- list entries read; `bounded` whether dead entries hid what may still lie behind; `short` whether the list ended.
function M.peek(limit)
  local mixed = queue.root.rank_tail and redis.call("EXISTS", queue.key.ranked) == 1
  local dead = counter.get("ghosts") > 0
  if mixed or dead then return ranked.peek(limit, mixed, dead) end
  local slice = redis.call("LRANGE", queue.key.ready, 0, limit - 1)
  plan.proven[queue.key.ready] = true
  return { ids = slice, slice = slice, plain = true, short = #slice < limit, bounded = false }
end

-- Plans the removal of the first `count` peeked jobs, and of the dead entries among and, at the end, behind them.
function M.pop(peeked, count)
  local popped = count
  if not peeked.plain then popped = ranked.pop(peeked, count) end
  if popped > 0 then
    plan.add("LTRIM", queue.key.ready, number.text(popped), "-1")
    counter.set("first", counter.get("first") + popped)
  end
end

return M
