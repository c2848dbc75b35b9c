-- types: which type each column has, and the proof of it
local plan = require("lib.plan")
local refuse = require("lib.refuse")

-- the columns of job queues, and then those that only event queues have (lib/events/columns)
local M = { of = {
  body = "hash", head = "hash", lease = "hash", meta = "hash", result = "hash", error = "hash", progress = "hash",
  attempts = "hash", history = "hash", ghost = "hash", broken = "hash", waiters = "hash", groups = "hash",
  ready = "list", bell = "list",
  ranked = "zset", sched = "zset", leased = "zset", aging = "zset", seen = "zset",
  completed = "zset", dead = "zset", cancelled = "zset", quarantined = "zset",
  ev = "hash", subs = "hash", gens = "hash", cursor = "hash", roster = "hash", refs = "hash", was = "hash",
  dropped = "hash", log = "zset", deadlines = "zset", archives = "zset", retiring = "zset", due = "zset",
  mort = "zset", parked = "zset", idle = "set",
} }

local function prove(queue, name)
  local key = queue.key[name]
  local found = redis.call("TYPE", key)["ok"]
  if found ~= "none" and found ~= M.of[name] then return refuse.wrong_type(key, found, M.of[name]) end
  queue.here[name] = found ~= "none"
  plan.proven[key] = true
end

-- Proves the type of each named column of `queue` (lib/queue), so that no later command can fail half way; returns a
-- refusal or nil. Of those that are `seldom` there, none may be.
function M.prove(queue, names)
  if names.seldom then queue.look(names.seldom) end
  for i = 1, #names do
    local refusal = rawget(queue.here, names[i]) ~= false and prove(queue, names[i])
    if refusal then return refusal end
  end
end

-- The refusal for an error that a script ran into before it wrote anything: the key of a foreign type that caused it.
function M.explain(queue, problem)
  local text = type(problem) == "table" and problem.err or tostring(problem)
  if string.find(text, "WRONGTYPE", 1, true) then
    local root = redis.call("TYPE", KEYS[1])["ok"]
    if root ~= "hash" and root ~= "none" then return refuse.wrong_type(KEYS[1], root, "hash") end
    for name in pairs(M.of) do
      local refusal = M.prove(queue, { name })
      if refusal then return refusal end
    end
  end
  return redis.error_reply("ERR " .. text)
end

return M
