-- roster: which generations an event is owed to, by version, so that no list is copied at emission
--
-- A version is block "." delta. roster field s<block> is a whole list, the generations joined by "," then ";" and their
-- packed names; d<block>.<n> is the n-th change to it, "+" or "-" generation "," name. refs counts the stored events of
-- each block: one without any, and not the current one, goes.
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local pack = lazy("lib.pack")

local M = {}

local DELTAS = 32           -- changes until a new list is written
local lists = {}            -- version -> members
local released = {}         -- block -> events that let it go in this call

local function drop(block)
  plan.add("HDEL", queue.key.roster, "s" .. block)
  for i = 1, DELTAS do plan.add("HDEL", queue.key.roster, "d" .. block .. "." .. number.text(i)) end
  plan.add("HDEL", queue.key.refs, block)
end

-- Adds or takes away a subscription; `stamp` is this call's own. Needs the fields block and delta.
function M.change(sign, name, g, stamp)
  local block, delta = queue.root.block, tonumber(queue.root.delta or "0") + 1
  if block and delta <= DELTAS then
    plan.add("HSET", queue.key.roster, "d" .. block .. "." .. number.text(delta), sign .. g .. "," .. name)
    plan.add("HSET", KEYS[1], "delta", number.text(delta), "roster_mark", g .. sign)
    return
  end
  local current, names, gs = redis.call("HGETALL", queue.key.subs), {}, {}
  for i = 1, #current, 2 do
    if current[i] ~= name then names[#names + 1], gs[#gs + 1] = current[i], current[i + 1] end
  end
  if sign == "+" then names[#names + 1], gs[#gs + 1] = name, g end
  plan.add("HSET", queue.key.roster, "s" .. number.text(stamp), table.concat(gs, ",") .. ";" .. pack.list(names))
  plan.add("HSET", KEYS[1], "block", number.text(stamp), "delta", "0", "roster_mark", g .. sign)
  if block and redis.call("HEXISTS", queue.key.refs, block) == 0 then drop(block) end
end

-- The stored parts of a version: the list, then its changes.
function M.parts(version)
  local block, delta = string.match(version, "^(%d+)%.(%d+)$")
  if not block or not queue.here.roster then return {} end
  local fields, changes = { "s" .. block }, tonumber(delta)
  if changes > DELTAS then return {} end
  for i = 1, changes do fields[i + 1] = "d" .. block .. "." .. number.text(i) end
  return redis.call("HMGET", queue.key.roster, unpack(fields))
end

-- The generations of a version, always in the same order.
function M.members(version)
  local members = lists[version]
  if members then return members end
  local parts = M.parts(version)
  local removed, added = {}, {}
  for i = 2, #parts do
    local sign, g = string.match(parts[i] or "", "^([+-])([^,]*),")
    if sign == "+" then added[#added + 1] = g elseif sign then removed[g] = true end
  end
  members = {}
  for g in string.gmatch(string.match(parts[1] or "", "^[^;]*"), "[^,]+") do
    if not removed[g] then members[#members + 1] = g end
  end
  for i = 1, #added do
    if not removed[added[i]] then members[#members + 1] = added[i] end
  end
  lists[version] = members
  return members
end

-- One stored event less is owed to `version`.
function M.release(version)
  local block = string.match(version, "^(%d+)%.")
  if block then released[block] = (released[block] or 0) + 1 end
end

-- Plans what the released events leave behind. Needs the field block.
function M.done()
  for block, count in pairs(released) do
    local left = tonumber(redis.call("HGET", queue.key.refs, block) or "0") - count
    if left > 0 then
      plan.add("HSET", queue.key.refs, block, number.text(left))
    elseif block == queue.root.block then
      plan.add("HDEL", queue.key.refs, block)
    else
      drop(block)
    end
  end
  released = {}
end

return M
