-- events/info: an event queue at a glance
-- FLAGS  allow-oom
-- KEYS   root: ev log archives mort dead:*
-- ARGV   now slot number
-- REPLY  active, archived, created of the oldest active event or "", dead obligations
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local queue = require("lib.queue")
local number = require("lib.number")
local columns = require("lib.events.columns")
local event = require("lib.events.event")
local generation = require("lib.events.generation")

local refusal = queue.open(columns.glancing, {})
if refusal then return refusal end

local function card(index)
  return queue.here[index] and redis.call("ZCARD", queue.key[index]) or 0
end

local first = redis.call("ZRANGE", queue.key.log, 0, 0)[1]
local oldest = first and event.get(first)
local dead = 0
for _, g in ipairs(redis.call("ZRANGE", queue.key.mort, 0, columns.most - 1)) do
  local gen = generation.of(g)
  if not generation.prove(gen, { "dead" }) and gen.here.dead then
    dead = dead + redis.call("ZCARD", gen.key.dead)
  end
end
return { card("log"), card("archives"), oldest and oldest.created and number.text(oldest.created) or "", dead }
