-- queue/create: makes a queue, or stores the policy of the first client that declares one
-- FLAGS  -
-- KEYS   root
-- ARGV   now slot number, 1 when a policy is declared, number of pairs, the declared pairs, then pairs of every field
-- REPLY  1 when the queue is new, codec
-- REFUSES NOQUEUE CORRUPT STALE CONFLICT
-- MOVES  -
local queue = require("lib.queue")
local config = require("lib.config")

local WIDE = string.rep(" ", 65)

local declares, count = ARGV[queue.first], tonumber(ARGV[queue.first + 1])
local given = config.pairs(queue.first + 2, count)
local all = config.pairs(queue.first + 2 + 2 * count, (#ARGV - queue.first - 1) / 2 - count)

local function store(skip)
  local values = { "declared", declares }
  for i = 1, #all do
    if not skip[all[i][1]] then
      values[#values + 1] = all[i][1]
      values[#values + 1] = all[i][2]
    end
  end
  redis.call("HSET", KEYS[1], unpack(values))
end

if redis.call("EXISTS", KEYS[1]) == 0 then
  -- the wide field keeps the root a table: a compact hash is searched from its start on every call
  redis.call("HSET", KEYS[1], "format", "1", "wide", WIDE)
  store({})
  return { "1", redis.call("HGET", KEYS[1], "codec") }
end
local refusal = queue.open({}, { "declared", "codec" }) or config.conflict(given)
if refusal then return refusal end
if declares == "1" and queue.root.declared ~= "1" then store({ codec = true }) end
return { "0", queue.root.codec }
