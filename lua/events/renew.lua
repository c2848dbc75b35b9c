-- events/renew: extends leases, never past the event's deadline
-- FLAGS  allow-oom
-- KEYS   root: ev gens retiring leased:* parked:* lease:* dead:* error:* ob:* bell:*
-- ARGV   now slot number, lease ms, subscriptions, then per lease: subscription id token
-- REPLY  per lease, joined by commas: its end; L lost, G gone, N not active, ! damaged
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  -
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")
local columns = require("lib.events.columns")
local event = require("lib.events.event")
local verdict = require("lib.events.verdict")

local WIDTH = 3

local refusal = queue.open(columns.renewing, columns.settings)
if refusal then return refusal end
local wrong, subs, from = verdict.subscriptions(queue.first + 1)
if wrong then return wrong end

local items, answers = {}, {}
for at = from, #ARGV, WIDTH do
  items[#items + 1] = { verb = "n", sub = subs[tonumber(ARGV[at])], id = ARGV[at + 1], token = ARGV[at + 2] }
end
if #items > 0 then verdict.load(items) end
local stop = queue.ms + tonumber(ARGV[queue.first])

local function extend(item)
  local held = verdict.holds(item.sub, item.id, item.token)
  local each = held and event.get(item.id)
  if not each then return verdict.late(item.sub, item) end
  local gen = item.sub.gen
  local wanted = each.expires and not held.redriven and math.min(stop, each.expires) or stop
  if wanted > gen.stops[item.id] then
    gen.stops[item.id] = wanted
    plan.add("ZADD", gen.key.leased, number.text(wanted), item.id)
  end
  return number.text(gen.stops[item.id])
end

for i = 1, #items do answers[i] = extend(items[i]) end
plan.commit()
return table.concat(answers, ",")
