-- waiters: who waits for a job's result
--
-- waiters: id -> "nonce:until" entries, joined by commas. A waiter blocks on the list w:<nonce>. The end of a job puts
-- its outcome there twice, one element to wake and one to read, so that it arrives also when the record is not kept.
local queue = require("lib.queue")
local plan = require("lib.plan")
local number = require("lib.number")

local M = {}

local KEPT_MS = 60000
local told = {}

function M.key(nonce)
  return KEYS[1] .. ":w:" .. nonce
end

-- Tells those who wait for `id` that it ended: `letter` is its terminal state's, or g for gone.
function M.tell(id, letter, data)
  local list = queue.here.waiters and not told[id] and redis.call("HGET", queue.key.waiters, id)
  if not list then return end
  told[id] = true
  for nonce in string.gmatch(list, "([^:,]+):%d+") do
    plan.add("RPUSH", M.key(nonce), letter .. data, letter .. data)
    plan.add("PEXPIRE", M.key(nonce), number.text(KEPT_MS))
  end
  plan.add("HDEL", queue.key.waiters, id)
end

-- Registers `nonce` for `id` for `ms`, or with 0 takes it off the list; drops those whose time has passed.
function M.register(id, nonce, ms)
  local kept, list = {}, redis.call("HGET", queue.key.waiters, id)
  for other, stop in string.gmatch(list or "", "([^:,]+):(%d+)") do
    if other ~= nonce and tonumber(stop) > queue.ms then kept[#kept + 1] = other .. ":" .. stop end
  end
  if ms > 0 then kept[#kept + 1] = nonce .. ":" .. number.text(queue.ms + ms) end
  if #kept > 0 then
    plan.add("HSET", queue.key.waiters, id, table.concat(kept, ","))
  elseif list then
    plan.add("HDEL", queue.key.waiters, id)
  end
end

return M
