-- queue/alter: changes the given fields of the stored policy
-- FLAGS  allow-oom
-- KEYS   root
-- ARGV   now slot number, number of fields, every field name, then pairs to set
-- REPLY  the old text of every field
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local plan = require("lib.plan")
local pack = require("lib.pack")

local refusal = queue.open({}, {})
if refusal then return refusal end
if queue.answer then return pack.unlist(queue.answer) end
local count = tonumber(ARGV[queue.first])
local names = {}
for i = 1, count do names[i] = ARGV[queue.first + i] end
local old = redis.call("HMGET", KEYS[1], unpack(names))
for i = 1, count do old[i] = old[i] or "" end
plan.add("HSET", KEYS[1], "declared", "1")
queue.remember(pack.list(old))
for i = queue.first + count + 1, #ARGV, 2 do
  plan.add("HSET", KEYS[1], ARGV[i], ARGV[i + 1])
  if ARGV[i] == "keep" then
    -- records that the old rule kept may be too many, or too old, for the new one: the sweep starts over
    plan.add("HSET", KEYS[1], "uncounted", "1", "group_scan", "0")
    plan.add("HDEL", KEYS[1], "aged:completed", "aged:dead", "aged:cancelled", "aged:quarantined")
  end
end
plan.commit()
return old
