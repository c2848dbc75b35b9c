-- queue/open: holds a client to the stored settings at its first use of a queue
-- FLAGS  allow-oom
-- KEYS   root
-- ARGV   now slot number, then pairs of the fields that the client declared
-- REPLY  declared codec
-- REFUSES NOQUEUE CORRUPT STALE CONFLICT
-- MOVES  -
local queue = require("lib.queue")
local config = require("lib.config")

local refusal = queue.open({}, { "declared", "codec" })
  or config.conflict(config.pairs(queue.first, (#ARGV - queue.first + 1) / 2))
if refusal then return refusal end
return { queue.root.declared, queue.root.codec }
