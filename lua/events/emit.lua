-- events/emit: stores new events, owed to the subscriptions that are active now
-- FLAGS  -
-- KEYS   root: ev body log deadlines archives gens retiring roster refs seen was idle subs ob:* bell:*
-- ARGV   now slot number, floor, mark of the roster that the caller knows, then per event: id body ttl
--        ttl: "" the queue's, "-" none, else ms
-- REPLY  created, ttl of the queue, mark of the roster, letters, texts, roster as name and generation in turns
--        letters: a active, c completed, x expired; P a duplicate, M one of which the memory is left: each with a text,
--        created "," expires "," status "," settled; U one that a sweep has to remove first, and then nothing was done
-- REFUSES NOQUEUE CORRUPT STALE
-- MOVES  (new) -> active; (new) -> completed; (new) -> expired
local number = require("lib.number")
local stamp = require("lib.stamp")
local queue = require("lib.queue")
local plan = require("lib.plan")
local pack = require("lib.pack")
local columns = require("lib.events.columns")
local event = require("lib.events.event")
local ring = lazy("lib.events.ring")
local standing = lazy("lib.events.standing")

local WIDTH = 3
local IDLE = 1000           -- subscriptions that one emission rings

local refusal = queue.open(columns.emitting, columns.settings)
if refusal then return refusal end
queue.settings({ "ttl", "delta", "roster_mark" })

local text = number.text
local known = ARGV[queue.first + 1]

-- What was answered to the caller, with the roster if it is one that the caller does not know.
local function reply(answer)
  local created, ttl, mark, letters, start = string.match(answer, "^(%d*)|(%d*)|([^|]*)|(%a*)|()")
  local roster = {}
  if mark ~= "" and mark ~= known and mark == queue.root.roster_mark then
    roster = redis.call("HGETALL", queue.key.subs)
  end
  return { created, ttl, mark, letters, pack.unlist(answer, start), roster }
end
if queue.answer then return reply(queue.answer) end

local first_at = queue.first + 2
local count = (#ARGV - first_at + 1) / WIDTH
local ids, letters, texts, new = {}, {}, {}, {}
for i = 1, count do ids[i] = ARGV[first_at + (i - 1) * WIDTH] end
event.load(ids)
local seen = queue.here.seen and redis.call("ZMSCORE", queue.key.seen, unpack(ids)) or {}
local was = queue.here.was and redis.call("HMGET", queue.key.was, unpack(ids)) or {}
local owed = redis.call("HLEN", queue.key.subs)
local dedup = tonumber(queue.root.dedup)
local seq = stamp.next(ARGV[queue.first])
local first, stored, rings = seq, 0, false
local unswept = false

local function told(created, expires, status, settled)
  texts[#texts + 1] = text(created) .. "," .. (expires and text(expires) or "") .. "," .. status .. ","
    .. (settled and text(settled) or "")
end

-- The letter of an id that is taken, or nil.
local function duplicate(i, id)
  if new[id] and (new[id].stored or dedup > 0) then
    told(queue.ms, new[id].expires, new[id].status, new[id].settled)
    return new[id].stored and "P" or "M"
  end
  local each = event.get(id)
  if each and each.damaged then
    told(queue.ms, nil, "a", nil)
    return "P"
  elseif each then
    local there, status, settled = standing.present(each)
    if there then
      told(each.created, each.expires, status, settled)
      return "P"
    elseif settled + dedup > queue.ms then
      told(each.created, each.expires, status, settled)
      return "M"
    end
    unswept = true
    return "U"
  end
  local settled = seen[i] and tonumber(seen[i])
  if settled and settled + dedup > queue.ms then
    local created, expires, status = string.match(was[i] or "", "^(%d+),(%d*),([cx])$")
    told(tonumber(created) or settled, tonumber(expires), status or "c", settled)
    return "M"
  end
end

local function deadline(ttl)
  if ttl == "" then ttl = queue.root.ttl end
  ttl = tonumber(ttl)
  return ttl and owed > 0 and queue.ms + ttl or nil
end

local retention = tonumber(queue.root.archive_retention)
local archives = queue.root.on_completion == "archive" and not (retention and retention <= 0)

local function insert(i, id, at)
  local expires = deadline(ARGV[at + 2])
  local status = owed == 0 and "c" or expires and expires <= queue.ms and "x" or "a"
  local settled = status ~= "a" and queue.ms or nil
  local version = owed > 0 and queue.root.block .. "." .. queue.root.delta or ""
  local keep = status == "a" or archives
  if keep then
    plan.add("HSET", queue.key.ev, id, event.header(status, text(owed), queue.now, settled and queue.now or "",
      text(seq), queue.now, expires and text(expires) or "", version, text(#ARGV[at + 1])))
    plan.add("HSET", queue.key.body, id, ARGV[at + 1])
    if owed > 0 then stored = stored + 1 end
  end
  local remembers = status ~= "a" and not keep and dedup > 0
  if seen[i] and not remembers then
    plan.add("ZREM", queue.key.seen, id)
    plan.add("HDEL", queue.key.was, id)
  end
  if status == "a" then
    plan.add("ZADD", queue.key.log, text(seq), id)
    if expires then plan.add("ZADD", queue.key.deadlines, text(expires), id) end
    rings = true
  elseif keep then
    plan.add("ZADD", queue.key.archives, queue.now, id)
  elseif remembers then
    plan.add("ZADD", queue.key.seen, queue.now, id)
    plan.add("HSET", queue.key.was, id, queue.now .. "," .. (expires and text(expires) or "") .. "," .. status)
  end
  new[id] = { status = status, expires = expires, settled = settled, stored = keep }
  seq = seq + 1
  return status
end

for i = 1, count do
  letters[i] = duplicate(i, ids[i]) or insert(i, ids[i], first_at + (i - 1) * WIDTH)
end
local answer = queue.now .. "|" .. queue.root.ttl .. "|" .. (owed > 0 and queue.root.roster_mark or "") .. "|"
  .. table.concat(letters) .. "|" .. pack.list(texts)
if unswept then return reply(answer) end

if stored > 0 then redis.call("HINCRBY", queue.key.refs, queue.root.block, stored) end
plan.add("HSET", KEYS[1], "stamp", text(math.max(seq - 1, first - 1)))
queue.remember(answer)
plan.commit()
if rings and queue.here.idle then
  local idle = redis.call("SPOP", queue.key.idle, IDLE)
  for i = 1, #idle do ring.push(idle[i]) end
end
return reply(answer)
