-- counter: whole numbers in the root hash
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")

local M = {}

function M.get(field)
  return tonumber(queue.root[field] or "0")
end

function M.set(field, value)
  queue.root[field] = number.text(value)
  plan.add("HSET", KEYS[1], field, queue.root[field])
end

return M
