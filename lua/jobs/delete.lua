-- jobs/delete: ends a queue: every key of it
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched ready ranked ghost bell broken completed dead cancelled quarantined
--        groups aging seen result error attempts history progress waiters group:* w:*
-- ARGV   now slot number, 1 to delete live jobs too
-- REPLY  1, or 0 when there are too many groups for one call: purge the terminal jobs first
-- REFUSES NOQUEUE CORRUPT STALE NOTEMPTY
-- MOVES  -
local queue = require("lib.queue")
local plan = require("lib.plan")
local touched = require("lib.touched")
local number = require("lib.number")
local refuse = require("lib.refuse")
local waiters = require("lib.waiters")
local ghosts = require("lib.ghosts")

local GROUPS = 1000         -- keys that one call takes away beside the columns

local refusal = queue.open(touched.columns, { "paused", "ghosts" })
if refusal then return refusal end

local live = ghosts.live_length() + redis.call("ZCARD", queue.key.ranked)
  + redis.call("ZCARD", queue.key.sched) + redis.call("ZCARD", queue.key.leased)
if live > 0 and ARGV[queue.first] ~= "1" then
  return refuse.word("NOTEMPTY", KEYS[1] .. " holds " .. number.text(live)
    .. " live jobs: finish or purge them, or delete with force")
end
if redis.call("HLEN", queue.key.groups) > GROUPS then return "0" end

-- those who wait for a result learn it now; beyond a thousand, at their next look
local waiting = redis.call("HSCAN", queue.key.waiters, "0", "COUNT", GROUPS)[2]
for i = 1, #waiting, 2 do waiters.tell(waiting[i], "g", "") end
plan.commit()

local keys = { KEYS[1] }
for _, name in ipairs(touched.columns) do keys[#keys + 1] = queue.key[name] end
local cursor = "0"
repeat
  local found = redis.call("HSCAN", queue.key.groups, cursor, "COUNT", GROUPS)
  for i = 1, #found[2], 2 do keys[#keys + 1] = KEYS[1] .. ":group:" .. found[2][i] end
  cursor = found[1]
until cursor == "0"
redis.call("UNLINK", unpack(keys))
return "1"
