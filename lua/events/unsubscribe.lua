-- events/unsubscribe: removes an active generation; what it owes is waived as of now, here or by the sweep
-- FLAGS  allow-oom
-- KEYS   root: ev body log deadlines archives gens cursor retiring due mort roster refs seen was broken idle subs
--        dropped leased:* parked:* lease:* dead:* error:* ob:* bell:*
-- ARGV   now slot number, name, generation
-- REPLY  1 removed, 0 not active; 2 when too many removed ones are waiting to be waived: nothing done yet, ask again
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  pending -> waived; active -> completed
local number = require("lib.number")
local stamp = require("lib.stamp")
local queue = require("lib.queue")
local plan = require("lib.plan")
local columns = require("lib.events.columns")
local generation = require("lib.events.generation")
local roster = require("lib.events.roster")
local ring = require("lib.events.ring")
local retire = require("lib.events.retire")

local BATCH = 50            -- obligations that one call waives
local WAITING = 16          -- removed generations with obligations left, at most

local refusal = queue.open(columns.removing, columns.settings)
if refusal then return refusal end
if queue.answer then return queue.answer end
queue.settings({ "delta" })

local name, g = ARGV[queue.first], ARGV[queue.first + 1]
if redis.call("HGET", queue.key.subs, name) ~= g then return "0" end
if redis.call("ZCARD", queue.key.retiring) >= WAITING then
  retire.run(BATCH)
  return "2"
end
local facts, stop = generation.facts(g), stamp.next("")
local born = facts and number.text(facts.born) or string.match(g, "^%d+")
plan.add("HDEL", queue.key.subs, name)
plan.add("HSET", queue.key.gens, g, generation.text(born, number.text(stop), queue.now, name))
plan.add("ZADD", queue.key.retiring, queue.now, g)
plan.add("ZREM", queue.key.due, g)
plan.add("ZREM", queue.key.mort, g)
roster.change("-", name, g, stop)
plan.add("HSET", KEYS[1], "stamp", number.text(stop))
queue.remember("1")
plan.commit()
if redis.call("SREM", queue.key.idle, g) == 1 then ring.push(g) end
generation.forget(g)
queue.here.retiring = true
queue.settings({ "block" })
retire.run(BATCH)
return "1"
