-- stamp: numbers that only grow: by at least one each, and never behind the clock
local number = require("lib.number")
local queue = require("lib.queue")

local M = {}

local DAY_US = 86400000000

-- The next stamp of a queue whose field `stamp` is read. `floor` is the highest that the caller has seen, maybe on a
-- master that is gone; one far ahead of the clock is not believed.
function M.next(floor)
  local stamp = math.max(tonumber(queue.root.stamp or "0") + 1, queue.us)
  floor = tonumber(floor) or 0
  if floor >= stamp and floor < queue.us + DAY_US then stamp = floor + 1 end
  return stamp
end

-- A token: a stamp and the nonce of the call that it is made for.
function M.token(stamp, nonce)
  return number.text(stamp) .. "-" .. nonce
end

return M
