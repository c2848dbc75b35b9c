-- jobs/get: reads jobs by id; an unknown one has no head
-- FLAGS  allow-oom
-- KEYS   root: head body meta lease leased sched broken completed dead cancelled quarantined result error progress
-- ARGV   now slot number, ids
-- REPLY  see lib/record
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local record = require("lib.record")

local refusal = queue.open(record.columns, record.fields)
if refusal then return refusal end
local ids = {}
for i = queue.first, #ARGV do ids[#ids + 1] = ARGV[i] end
return record.read(ids)
