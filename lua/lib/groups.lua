-- groups: the terminal jobs of one state and name, so that a rule prunes without reading what it keeps
--
-- group:<state>:<name> has the scores of the state's own index. Hash `groups` lists the groups that have members.
local queue = require("lib.queue")
local plan = require("lib.plan")
local aside = lazy("lib.aside")

local M = { state = { c = "completed", d = "dead", x = "cancelled", q = "quarantined" } }

local known = {}            -- state:name -> { key, field, state, size, usable, left }

-- The group of a state and a name, or nil when a foreign type sits there: then these jobs go without a count rule.
function M.of(state, name)
  local field = state .. ":" .. name
  local group = known[field]
  if not group then
    local key = KEYS[1] .. ":group:" .. field
    local size = redis.pcall("ZCARD", key)
    group = { key = key, field = field, state = state, size = size, left = 0, usable = type(size) == "number" }
    known[field] = group
    plan.sizes[key] = group.usable and size or nil
    if not group.usable then aside.set(key, "it does not hold the zset that belongs there") end
  end
  return group.usable and group or nil
end

-- Counts one more job in a group; its first one lists it.
function M.count(group)
  if group.size == 0 then plan.add("HSET", queue.key.groups, group.field, "") end
  group.size = group.size + 1
end

-- Puts a job into its group.
function M.join(group, score, id)
  M.count(group)
  plan.add("ZADD", group.key, score, id)
end

-- A group that lost its last job is no longer listed.
local function unlist_empty()
  for field, group in pairs(known) do
    if group.left > 0 then
      group.size, group.left = group.size - group.left, 0
      if group.size <= 0 then
        group.size = redis.call("ZCARD", group.key)
        if group.size == 0 then redis.call("HDEL", queue.key.groups, field) end
      end
    end
  end
end

-- Takes jobs out of their group.
function M.quit_all(group, ids)
  group.left = group.left + #ids
  plan.append("ZREM", group.key, ids)
  plan.after(unlist_empty)
end

-- Takes a job out of its group.
function M.quit(group, id)
  M.quit_all(group, { id })
end

return M
