-- ready: the jobs that a take hands out, in order
--
-- Priority 0 is a list, the cheapest index there is; other priorities share the zset `ranked`, scored
-- -priority * SPAN + order. The order counts up at the tail and down at the head from the middle of SPAN, so both stay
-- exact whole numbers: 2,199,023,255,552 entries in each direction before the index must once have been empty.
--
-- A job that leaves the middle of the list (cancel, remove) can't be cut out cheaply: hash `ghost` counts its dead
-- entries, id -> n, or id -> n "," position once a live entry of the same id stands behind them; field "" holds their
-- sum. `first` in the root is the position of the list's first entry: it goes up with each pop and down with each push
-- at the head, so a position names an entry for ever.
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local wake = require("lib.wake")

local M = {}

local SPAN = 2 ^ 42
local MIDDLE = 2 ^ 41
local SKIP = 1000           -- dead entries that one call steps over beyond what it was asked for

local tail, front = {}, {}  -- jobs on their way in
local ghosted = 0           -- list entries that died in this call

-- The place before the list among the ranked, as a listing's cursor; and whether a ranked place lies behind the list.
M.before_list = number.text(SPAN) .. "|"
function M.is_behind(place)
  return tonumber(string.match(place, "^[^|]+")) >= SPAN
end

function M.to_tail(job) tail[#tail + 1] = job end
function M.to_head(job) front[#front + 1] = job end

local function ghosts(id)
  local value = queue.here.ghost and redis.call("HGET", queue.key.ghost, id)
  return value and tonumber(string.match(value, "^%d+")) or 0
end

local function first()
  return tonumber(queue.root.first or "0")
end

-- Tells the live entry of an id from its dead ones.
local function mark_live(id, position)
  local dead = ghosts(id)
  if dead > 0 then plan.add("HSET", queue.key.ghost, id, number.text(dead) .. "," .. number.text(position)) end
end

local function rank(job, order)
  plan.add("ZADD", queue.key.ranked, number.text(-job.fixed.priority * SPAN + order), job.id)
end

local function orders()
  if redis.call("ZCARD", queue.key.ranked) == 0 then return MIDDLE, MIDDLE - 1 end
  return tonumber(queue.root.rank_tail or MIDDLE), tonumber(queue.root.rank_head or MIDDLE - 1)
end

local function set(field, value)
  queue.root[field] = number.text(value)
  plan.add("HSET", KEYS[1], field, queue.root[field])
end

local function rank_all(tails, fronts)
  local up, down = orders()
  for i = 1, #tails do
    rank(tails[i], math.min(up, SPAN - 1))
    up = up + 1
  end
  for i = #fronts, 1, -1 do
    rank(fronts[i], math.max(down, 0))
    down = down - 1
  end
  set("rank_tail", up)
  set("rank_head", down)
end

local function split(jobs)
  local plain, ranked = {}, {}
  for i = 1, #jobs do
    local into = jobs[i].fixed.priority == 0 and plain or ranked
    into[#into + 1] = jobs[i]
  end
  return plain, ranked
end

-- Plans the entries of all jobs on their way in, and the sum of dead ones; a block for the head keeps its order.
function M.enter()
  if ghosted > 0 then
    plan.add("HINCRBY", queue.key.ghost, "", number.text(ghosted))
    ghosted = 0
  end
  if #tail == 0 and #front == 0 then return end
  local tails, ranked_tails = split(tail)
  local fronts, ranked_fronts = split(front)
  tail, front = {}, {}
  if #tails > 0 then
    local push = plan.of("RPUSH", queue.key.ready)
    local size = queue.here.ghost and redis.call("LLEN", queue.key.ready)
    for i = 1, #tails do
      push[i] = tails[i].id
      if size then mark_live(tails[i].id, first() + size + i - 1) end
    end
  end
  if #fronts > 0 then
    local push = plan.of("LPUSH", queue.key.ready)
    for i = #fronts, 1, -1 do
      push[#push + 1] = fronts[i].id
    end
    set("first", first() - #fronts)
  end
  if #ranked_tails + #ranked_fronts > 0 then rank_all(ranked_tails, ranked_fronts) end
  wake.work()
end

-- Takes a ready job out of its index.
function M.leave(job)
  if job.fixed.priority ~= 0 then
    plan.add("ZREM", queue.key.ranked, job.id)
  else
    plan.add("HSET", queue.key.ghost, job.id, number.text(ghosts(job.id) + 1))
    ghosted = ghosted + 1
  end
end

-- Takes a damaged job out of the list if it has a live entry there: the one search of the whole list, at some 10 ms a
-- million entries. Without it the entry would hand out a new job of the same id a second time.
function M.leave_if_there(id)
  local entries = redis.call("LPOS", queue.key.ready, id, "COUNT", 0)
  if #entries > ghosts(id) then M.leave({ id = id, fixed = { priority = 0 } }) end
end

-- Whether any entry is left.
function M.waiting()
  return redis.call("EXISTS", queue.key.ready, queue.key.ranked) > 0
end

-- The live entries of a slice of the list: ids, and for each the number of list entries up to and with it.
local function live_entries(slice, wanted)
  local ids, upto = {}, {}
  if not queue.here.ghost then
    for i = 1, math.min(#slice, wanted) do
      ids[i], upto[i] = slice[i], i
    end
    return ids, upto
  end
  local dead, met = {}, {}
  local counts = #slice > 0 and redis.call("HMGET", queue.key.ghost, unpack(slice)) or {}
  for i = 1, #slice do
    local id = slice[i]
    dead[id] = counts[i] and tonumber(string.match(counts[i], "^%d+")) or 0
    met[id] = (met[id] or 0) + 1
    if met[id] > dead[id] and #ids < wanted then
      ids[#ids + 1] = id
      upto[#upto + 1] = i
    end
  end
  return ids, upto
end

local function ranked_ids(from, to, limit)
  if limit <= 0 or not queue.here.ranked then return {} end
  return redis.call("ZRANGE", queue.key.ranked, from, to, "BYSCORE", "LIMIT", 0, limit)
end

-- Up to `limit` ready jobs in take order. `ids`; `upto[i]` list entries to pop for it (0: it is ranked); `slice` the
-- list entries read; `bounded` whether dead entries hid what may still lie behind.
function M.peek(limit)
  queue.here.ranked = redis.call("EXISTS", queue.key.ranked) == 1
  local ids, upto = ranked_ids("-inf", "(0", limit), {}
  for i = 1, #ids do upto[i] = 0 end
  local wanted = limit - #ids
  local reach = queue.here.ghost and wanted + SKIP or wanted
  local slice = wanted > 0 and redis.call("LRANGE", queue.key.ready, 0, reach - 1) or {}
  local plain, plain_upto = live_entries(slice, wanted)
  for i = 1, #plain do
    ids[#ids + 1], upto[#upto + 1] = plain[i], plain_upto[i]
  end
  local bounded = #plain < wanted and #slice == reach
  if not bounded then
    local low = ranked_ids(number.text(SPAN), "+inf", limit - #ids)
    for i = 1, #low do
      ids[#ids + 1], upto[#upto + 1] = low[i], 0
    end
  end
  return { ids = ids, upto = upto, slice = slice, bounded = bounded, short = #plain < wanted }
end

local function forget_ghosts(slice, popped)
  local met, total = {}, 0
  for i = 1, popped do
    met[slice[i]] = (met[slice[i]] or 0) + 1
  end
  for id, seen in pairs(met) do
    local dead = ghosts(id)
    local gone = math.min(seen, dead)
    if gone > 0 then
      total = total + gone
      if gone == dead then
        plan.add("HDEL", queue.key.ghost, id)
      else
        plan.add("HSET", queue.key.ghost, id, number.text(dead - gone))
      end
    end
  end
  if total > 0 then
    local left = tonumber(redis.call("HGET", queue.key.ghost, "") or "0") - total
    if left > 0 then
      plan.add("HSET", queue.key.ghost, "", number.text(left))
    else
      plan.add("HDEL", queue.key.ghost, "")
    end
  end
end

-- Plans the removal of the first `count` peeked jobs, and of the dead entries among and, at the end, behind them.
function M.pop(peeked, count)
  local popped = 0
  for i = 1, count do
    if peeked.upto[i] > 0 then
      popped = peeked.upto[i]
    else
      plan.add("ZREM", queue.key.ranked, peeked.ids[i])
    end
  end
  if count == #peeked.ids and peeked.short then popped = #peeked.slice end
  if popped > 0 then
    if queue.here.ghost then forget_ghosts(peeked.slice, popped) end
    plan.add("LTRIM", queue.key.ready, number.text(popped), "-1")
    set("first", first() + popped)
  end
end

return M
