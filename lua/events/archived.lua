-- events/archived: ids of archived events, in the order of their settlement
-- FLAGS  allow-oom
-- KEYS   root: archives
-- ARGV   now slot number, offset, limit
-- REPLY  ids
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local number = require("lib.number")
local queue = require("lib.queue")

local refusal = queue.open({ "archives" }, { "archive_retention" })
if refusal then return refusal end
if not queue.here.archives then return {} end

local retention = tonumber(queue.root.archive_retention)
local past = retention and redis.call("ZCOUNT", queue.key.archives, "-inf", number.text(queue.ms - retention)) or 0
local from = past + tonumber(ARGV[queue.first])
return redis.call("ZRANGE", queue.key.archives, number.text(from), number.text(from + ARGV[queue.first + 1] - 1))
