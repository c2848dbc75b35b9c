-- drop: gives up the oldest obligations of subscriptions that let too many wait, or for too long
--
-- Generations are looked at in turns; root field drop_scan says where the next look starts.
local queue = require("lib.queue")
local plan = require("lib.plan")
local number = require("lib.number")
local event = require("lib.events.event")
local generation = require("lib.events.generation")
local resolve = require("lib.events.resolve")
local contain = lazy("lib.events.contain")

local M = {}

local LOOK = 50             -- subscriptions that one call looks at
local REACH = 100           -- retried ones among the parked that are passed over

local text = number.text

local function past(index)
  local head = queue.here[index] and redis.call("ZRANGE", queue.key[index], 0, 0, "WITHSCORES") or {}
  return head[2] and tonumber(head[2]) <= queue.ms
end

local function idle(state, each)
  local after = tonumber(queue.root.idle_after)
  return after and math.max(state.taken, each.created) + after <= queue.ms
end

local function goes(state, each)
  return state.excess > 0 or idle(state, each)
end

local function give_up(state, each)
  resolve.waived(each, state.gen.g, state.gen, queue.ms)
  state.excess = state.excess - 1
  state.dropped = state.dropped + 1
end

local function usable(each)
  if event.sound(each) then return true end
  contain.event(each, each.damaged)
end

local function by_age(a, b)
  return a.seq < b.seq
end

-- What was handed back and waits, oldest first; a retried obligation stays.
local function from_parked(state, limit)
  if not state.gen.here.parked then return end
  local ids, list = redis.call("ZRANGE", state.gen.key.parked, 0, limit + REACH - 1), {}
  event.load(ids)
  for i = 1, #ids do
    local each = event.get(ids[i])
    if each and usable(each) and each.status == "a" and not event.row(each, state.gen.g) then list[#list + 1] = each end
  end
  table.sort(list, by_age)
  for i = 1, #list do
    if state.dropped >= limit then return end
    if goes(state, list[i]) then give_up(state, list[i]) end
  end
end

local function from_log(state, limit)
  local ids = redis.call("ZRANGE", queue.key.log, "(" .. text(state.cursor), "+inf", "BYSCORE", "LIMIT", 0,
    limit - state.dropped)
  event.load(ids)
  local reached
  for i = 1, #ids do
    local each = event.get(ids[i])
    if not each then
      contain.orphan(ids[i])
    elseif usable(each) then
      if not goes(state, each) then break end
      give_up(state, each)
      reached = each.seq
    end
  end
  if reached then
    plan.add("HSET", queue.key.cursor, state.gen.g, generation.cursor_text(reached, state.taken))
  end
end

local function state_of(g)
  local gen = resolve.keys_of(g)
  local cursor, taken = generation.cursor(redis.call("HGET", queue.key.cursor, g) or "")
  if not gen or not cursor then return nil end
  local most, excess = tonumber(queue.root.max_backlog), 0
  if most then
    local waiting = gen.here.parked and redis.call("ZCARD", gen.key.parked) or 0
    excess = waiting + redis.call("ZCOUNT", queue.key.log, "(" .. text(cursor), "+inf") - most
  end
  return { gen = gen, cursor = cursor, taken = taken, excess = excess, dropped = 0 }
end

local function drop_of(g, limit)
  local state = state_of(g)
  if not state then return 0 end
  from_parked(state, limit)
  if state.dropped < limit then from_log(state, limit) end
  if state.dropped > 0 then
    resolve.commit()
    redis.call("HINCRBY", queue.key.dropped, g, state.dropped)
  end
  return state.dropped
end

-- Gives up to `limit` obligations up; returns how many, and whether there may be more. What is due by a deadline or a
-- lapse comes first: it changes what waits.
function M.run(limit)
  if queue.root.max_backlog == "" and queue.root.idle_after == "" then return 0, false end
  if past("deadlines") or past("due") then return 0, false end
  local found = redis.call("HSCAN", queue.key.subs, queue.root.drop_scan or "0", "COUNT", LOOK)
  local count = 0
  for i = 2, #found[2], 2 do
    count = count + drop_of(found[2][i], limit - count)
    if count >= limit then return count, true end
  end
  plan.add("HSET", KEYS[1], "drop_scan", found[1])
  return count, found[1] ~= "0"
end

return M
