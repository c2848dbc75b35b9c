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
local event = require("lib.events.event")
local ring = lazy("lib.events.ring")
local standing = lazy("lib.events.standing")

local WIDTH = 3
local IDLE = 1000           -- subscriptions that one emission rings

local text = number.text
local first_at = queue.first + 2
local ids, letters, texts, new = {}, {}, {}, {}
local owed, dedup, seen, seq, archives
local stored, rings, unswept = 0, false, false

-- What was answered to the caller, with the roster if it is one that the caller does not know.
local function reply(answer)
  local created, ttl, mark, letters_of, start = string.match(answer, "^(%d*)|(%d*)|([^|]*)|(%a*)|()")
  local roster = {}
  if mark ~= "" and mark ~= ARGV[queue.first + 1] and mark == queue.root.roster_mark then
    roster = redis.call("HGETALL", queue.key.subs)
  end
  return { created, ttl, mark, letters_of, pack.unlist(answer, start), roster }
end

local function told(created, expires, status, settled)
  texts[#texts + 1] = text(created) .. "," .. (expires and text(expires) or "") .. "," .. status .. ","
    .. (settled and text(settled) or "")
end

-- The letter of an id whose record is there, or a sweep has to remove first.
local function recorded(each)
  if each.damaged then
    told(queue.ms, nil, "a", nil)
    return "P"
  end
  local there, status, settled = standing.present(each)
  if there or settled + dedup > queue.ms then
    told(each.created, each.expires, status, settled)
    return there and "P" or "M"
  end
  unswept = true
  return "U"
end

-- The letter of an id that is taken, or nil.
local function duplicate(i, id)
  if new[id] and (new[id].stored or dedup > 0) then
    told(queue.ms, new[id].expires, new[id].status, new[id].settled)
    return new[id].stored and "P" or "M"
  end
  local each = event.get(id)
  if each then return recorded(each) end
  local settled = seen[i] and tonumber(seen[i])
  if settled and settled + dedup > queue.ms then
    local was = redis.call("HGET", queue.key.was, id) or ""
    local created, expires, status = string.match(was, "^(%d+),(%d*),([cx])$")
    told(tonumber(created) or settled, tonumber(expires), status or "c", settled)
    return "M"
  end
end

local function deadline(ttl)
  if ttl == "" then ttl = queue.root.ttl end
  ttl = tonumber(ttl)
  return ttl and owed > 0 and queue.ms + ttl or nil
end

-- Writes the record of a new event into the columns.
local function record(id, body, status, expires)
  local settled = status ~= "a" and queue.now or ""
  local version = owed > 0 and queue.root.block .. "." .. queue.root.delta or ""
  plan.add("HSET", queue.key.ev, id, event.header(status, text(owed), queue.now, settled, text(seq), queue.now,
    expires and text(expires) or "", version, text(#body)))
  plan.add("HSET", queue.key.body, id, body)
  if owed > 0 then stored = stored + 1 end
end

-- What an event that is over at once leaves behind: its record in the archive, or the memory of its id.
local function over(id, status, expires, remembers)
  if archives then
    plan.add("ZADD", queue.key.archives, queue.now, id)
  elseif remembers then
    plan.add("ZADD", queue.key.seen, queue.now, id)
    plan.add("HSET", queue.key.was, id, queue.now .. "," .. (expires and text(expires) or "") .. "," .. status)
  end
end

local function insert(i, id, at)
  local expires = deadline(ARGV[at + 2])
  local status = owed == 0 and "c" or expires and expires <= queue.ms and "x" or "a"
  local keep = status == "a" or archives
  local remembers = not keep and dedup > 0
  if keep then record(id, ARGV[at + 1], status, expires) end
  if seen[i] and not remembers then
    plan.add("ZREM", queue.key.seen, id)
    plan.add("HDEL", queue.key.was, id)
  end
  if status == "a" then
    plan.add("ZADD", queue.key.log, text(seq), id)
    if expires then plan.add("ZADD", queue.key.deadlines, text(expires), id) end
    rings = true
  else
    over(id, status, expires, remembers)
  end
  new[id] = { status = status, expires = expires, settled = status ~= "a" and queue.ms or nil, stored = keep }
  seq = seq + 1
  return status
end

local function read()
  local n = 0
  for at = first_at, #ARGV, WIDTH do
    n = n + 1
    ids[n] = ARGV[at]
  end
  event.load(ids)
  seen = redis.call("ZMSCORE", queue.key.seen, unpack(ids))
  owed = redis.call("HLEN", queue.key.subs)
  dedup, seq = tonumber(queue.root.dedup), stamp.next(ARGV[queue.first])
  local retention = tonumber(queue.root.archive_retention)
  archives = queue.root.on_completion == "archive" and not (retention and retention <= 0)
end

return queue.run(function()
  local refusal = queue.open({}, { "on_completion", "archive_retention", "dead_retention", "dedup", "block", "stamp",
    "ttl", "delta", "roster_mark" })
  if refusal then return refusal end
  if queue.answer then return reply(queue.answer) end
  read()
  local first = seq
  for i = 1, #ids do
    letters[i] = duplicate(i, ids[i]) or insert(i, ids[i], first_at + (i - 1) * WIDTH)
  end
  local answer = queue.now .. "|" .. queue.root.ttl .. "|" .. (owed > 0 and queue.root.roster_mark or "") .. "|"
    .. table.concat(letters) .. "|" .. pack.list(texts)
  if unswept then return reply(answer) end

  local waiting = rings and redis.call("SCARD", queue.key.idle) > 0
  if stored > 0 then plan.add("HINCRBY", queue.key.refs, queue.root.block, stored) end
  plan.add("HSET", KEYS[1], "stamp", text(math.max(seq - 1, first - 1)))
  queue.remember(answer)
  plan.commit()
  if waiting then
    local idle = redis.call("SPOP", queue.key.idle, IDLE)
    for i = 1, #idle do ring.push(idle[i]) end
  end
  return reply(answer)
end)
