-- ring: the bells that idle takers of a subscription block on
--
-- `idle` names the generations with takers that wait and were not rung since. One element in a bell is enough: whoever
-- pops it takes, names the generation idle again, and rings for the next one when work is left. Whoever waits looks by
-- itself every two seconds, so what is due later needs no ring.
local queue = require("lib.queue")

local M = {}

local LOOK_MS = 2000
local KEEP_MS = "60000"     -- a bell that nobody answers goes
local wanted = {}
local hushed = false

-- While hushed nothing rings: this very call goes on to take what has become takeable.
function M.hush(on)
  hushed = on
end

-- Rings whether or not somebody waits.
function M.push(g)
  local key = KEYS[1] .. ":bell:" .. g
  if redis.call("EXISTS", key) == 1 then return end
  redis.call("RPUSH", key, "1")
  redis.call("PEXPIRE", key, KEEP_MS)
end

-- Something of `g` can be taken from `at` on: rings at the end of the call, if somebody waits.
function M.due(g, at)
  if not hushed and at < queue.ms + LOOK_MS then wanted[g] = true end
end

function M.done()
  for g in pairs(wanted) do
    if queue.here.idle and redis.call("SREM", queue.key.idle, g) == 1 then M.push(g) end
  end
  wanted = {}
end

return M
