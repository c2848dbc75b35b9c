-- jobs/renew: extends leases, and tells of cancel requests
-- FLAGS  allow-oom
-- KEYS   root: head lease leased bell
-- ARGV   now slot number, lease ms or "", then per lease: id token
-- REPLY  per lease, joined by commas: its end, with "!" once a cancel is asked for; L lost, G gone
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local plan = require("lib.plan")
local lease = require("lib.lease")
local wake = require("lib.wake")
local number = require("lib.number")

local refusal = queue.open({ "head", "lease", "leased", "bell" }, { "lease", "paused" })
if refusal then return refusal end

local start = queue.first + 1
local count = (#ARGV - start + 1) / 2
local stop = queue.ms + (tonumber(ARGV[queue.first]) or tonumber(queue.root.lease))
local ids = {}
for i = 1, count do ids[i] = ARGV[start + (i - 1) * 2] end
local heads = redis.call("HMGET", queue.key.head, unpack(ids))
local leases = redis.call("HMGET", queue.key.lease, unpack(ids))
local stops = redis.call("ZMSCORE", queue.key.leased, unpack(ids))

local extended = false

local function extend(i)
  local id, ends = ids[i], tonumber(stops[i])
  if not heads[i] then return "G" end
  local held = leases[i] and ends and ends > queue.ms and lease.has(leases[i], ARGV[start + i * 2 - 1])
    and lease.parse(leases[i])
  if not held then return "L" end
  if stop > ends then
    plan.add("ZADD", queue.key.leased, number.text(stop), id)
    ends = stop
    extended = true
  end
  return number.text(ends) .. (held.cancel and "!" or "")
end

local answers = {}
for i = 1, count do answers[i] = extend(i) end
if extended then wake.due("leased", stop) end
plan.commit()
return table.concat(answers, ",")
