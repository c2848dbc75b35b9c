-- events/subscribe: registers a name, or finds its active generation
-- FLAGS  -
-- KEYS   root: subs gens cursor roster refs
-- ARGV   now slot number, name, nonce, floor
-- REPLY  generation
-- REFUSES NOQUEUE CORRUPT STALE CAPACITY
-- MOVES  -
local number = require("lib.number")
local stamp = require("lib.stamp")
local queue = require("lib.queue")
local plan = require("lib.plan")
local refuse = require("lib.refuse")
local columns = require("lib.events.columns")
local generation = require("lib.events.generation")
local roster = require("lib.events.roster")

local refusal = queue.open(columns.subscribing, { "stamp", "block", "delta" })
if refusal then return refusal end
if queue.answer then return queue.answer end

local name = ARGV[queue.first]
local current = redis.call("HGET", queue.key.subs, name)
if current then return current end
if redis.call("HLEN", queue.key.subs) >= columns.most then
  return refuse.word("CAPACITY", KEYS[1] .. " has " .. number.text(columns.most)
    .. " active subscriptions, which is the limit: remove one that nobody uses")
end
local born = stamp.next(ARGV[queue.first + 2])
local g = stamp.token(born, ARGV[queue.first + 1])
plan.add("HSET", queue.key.subs, name, g)
plan.add("HSET", queue.key.gens, g, generation.text(number.text(born), "", "", name))
plan.add("HSET", queue.key.cursor, g, generation.cursor_text(born, 0))
roster.change("+", name, g, born)
plan.add("HSET", KEYS[1], "stamp", number.text(born))
queue.remember(g)
plan.commit()
return g
