-- deliver: leases up to `limit` events to a taker of a subscription
--
-- Arguments: name, generation, nonce, floor, limit, lease ms, mode ("" takes, "w" would wait, "k" has waited).
-- Reply: now, first stamp, policy max attempts, more, next, ids, headers, bodies, attempts, lease ends.
--   The token of the i-th event is (first stamp + i - 1) "-" nonce. One that a repeated call no longer holds has false
--   for its header. `more`: the pass was bounded, so fewer than `limit` is no proof that nothing is there. `next`: when
--   something becomes takeable by time alone, if nothing was taken.
--
-- What a generation can take is what is due in parked:<g> and what lies behind its cursor in the log. The cursor moves
-- over what is taken, and over what has expired meanwhile.
local number = require("lib.number")
local stamp = require("lib.stamp")
local queue = require("lib.queue")
local plan = require("lib.plan")
local pack = require("lib.pack")
local refuse = require("lib.refuse")
local event = require("lib.events.event")
local generation = require("lib.events.generation")
local hand = require("lib.events.hand")
local ring = require("lib.events.ring")
local resolve = require("lib.events.resolve")
local contain = lazy("lib.events.contain")
local lapse = require("lib.events.lapse")
local standing = lazy("lib.events.standing")

local M = { width = 7 }

local BYTES = 8 * 1024 * 1024
local LAPSES = 100
local STEP = 100            -- entries of the log that a further look reads
local REACH = 1000          -- entries of the log that one pass may skip

local text = number.text

local function arguments(at)
  return { name = ARGV[at], g = ARGV[at + 1], nonce = ARGV[at + 2], floor = ARGV[at + 3],
    limit = tonumber(ARGV[at + 4]), lease = tonumber(ARGV[at + 5]), mode = ARGV[at + 6] }
end

local function reply(first, more, next, taken)
  return { queue.now, first, queue.root.max_attempts, more, next, taken.ids, taken.headers, taken.bodies,
    taken.attempts, taken.stops }
end

local function nothing()
  return { ids = {}, headers = {}, bodies = {}, attempts = {}, stops = {} }
end

-- The refusal of a generation that is not active, or whose keys hold something else.
function M.refusal(at)
  local want = arguments(at)
  local facts = generation.active(want.g) and generation.facts(want.g)
  if not facts or facts.name ~= want.name then
    -- the next one of those who still wait for it
    if want.mode == "k" then ring.push(want.g) end
    return refuse.word("SUBGONE", "this generation of subscription " .. want.name .. " was removed")
  end
  local key, found, wanted = generation.prove(generation.of(want.g), resolve.columns)
  if key then return refuse.wrong_type(key, found, wanted) end
end

-- A retried obligation may be of an event that has settled, whether or not a sweep has seen that.
local function header(each, held)
  if not held.redriven then return each.raw end
  local status, settled = standing.of(each)
  return event.shown(each, status, settled)
end

-- The events that the first run of this call leased, as far as it still holds them.
function M.again(at, answer)
  local want = arguments(at)
  local gen = generation.of(want.g)
  local first, start = string.match(answer, "^(%d+)|()")
  local ids, taken, any = pack.unlist(answer, start), nothing(), false
  event.load(ids)
  hand.load(gen, ids)
  for i = 1, #ids do
    local each, held, stop = event.get(ids[i]), hand.get(gen, ids[i])
    local mine = each and held and stop and stop > queue.ms and held.mark == "y"
      and held.token == stamp.token(first + i - 1, want.nonce)
    any = any or mine
    taken.headers[i] = mine and header(each, held) or false
    taken.attempts[i], taken.stops[i] = held and text(held.attempt) or "0", stop and text(stop) or "0"
  end
  if not any then return nil end
  taken.ids, taken.bodies = ids, redis.call("HMGET", queue.key.body, unpack(ids))
  return reply(first, "0", "", taken)
end

-- What is due in parked: candidates in due order, and whether there may be more behind the last one.
local function parked(gen, limit)
  local list = {}
  if not gen.here.parked then return list, false end
  local found = redis.call("ZRANGE", gen.key.parked, "-inf", queue.now, "BYSCORE", "LIMIT", 0, limit, "WITHSCORES")
  local ids = {}
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  event.load(ids)
  hand.load(gen, ids)
  for i = 1, #ids do
    local id = ids[i]
    local each, held = event.get(id), hand.get(gen, id)
    if each and not held then
      local row = event.row(each, gen.g)
      held = hand.new(row and string.sub(row, 1, 1) == "r")
    end
    if not each then
      hand.out(gen, id)
    elseif each.damaged then
      contain.event(each, each.damaged)
      hand.out(gen, id)
    elseif not held.redriven and each.status ~= "a" then
      hand.out(gen, id)
    elseif not held.redriven and each.expires and each.expires <= queue.ms then
      plan.add("ZREM", gen.key.parked, id)
    else
      list[#list + 1] = { event = each, held = held, since = tonumber(found[i * 2]), parked = true }
    end
  end
  return list, #ids == limit
end

-- What lies behind the cursor: candidates in log order, the end of the look, and whether the log goes on behind it.
local function ahead(from, limit)
  local list, at, read, left = {}, from, limit, limit + REACH
  while true do
    local found = redis.call("ZRANGE", queue.key.log, "(" .. text(at), "+inf", "BYSCORE", "LIMIT", 0, read,
      "WITHSCORES")
    local ids = {}
    for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
    event.load(ids)
    for i = 1, #ids do
      local each = event.get(ids[i])
      if not each then
        contain.orphan(ids[i])
      elseif each.damaged then
        contain.event(each, each.damaged)
      elseif not (each.expires and each.expires <= queue.ms) then
        list[#list + 1] = { event = each, since = each.created, before = at, held = hand.new(false) }
      end
      at = tonumber(found[i * 2])
    end
    left = left - #ids
    if #ids < read then return list, at, false end
    if #list >= limit or left <= 0 then return list, at, true end
    read = math.min(STEP, left)
  end
end

-- The first `limit` of both by the time since when they can be taken, as far as their payloads go into one reply.
local function merged(p, q, limit)
  local list, bytes, i, j = {}, 0, 1, 1
  while #list < limit and (p[i] or q[j]) do
    local of_p = p[i] and (not q[j] or p[i].since <= q[j].since)
    local one = of_p and p[i] or q[j]
    bytes = bytes + one.event.size
    if bytes > BYTES and #list > 0 then return list, j, true end
    list[#list + 1] = one
    if of_p then i = i + 1 else j = j + 1 end
  end
  return list, j, false
end

-- Leaves out events whose bytes are gone.
local function with_bodies(list)
  local ids, good, bodies = {}, {}, {}
  for i = 1, #list do ids[i] = list[i].event.id end
  local found = #ids > 0 and redis.call("HMGET", queue.key.body, unpack(ids)) or {}
  for i = 1, #list do
    local each = list[i].event
    if found[i] and event.sound(each) then
      good[#good + 1], bodies[#bodies + 1] = list[i], found[i]
    else
      contain.event(each, each.damaged or "its payload is gone")
    end
  end
  return good, bodies
end

-- What goes on being answered to the token before: its mark with the token, and when that was due.
local function remember(held)
  if held.mark == "r" or held.mark == "f" then return held.mark .. held.token, held.due end
  return held.mark == "q" and held.last or "", ""
end

local function grant(want, gen, list, bodies, first)
  local taken, soonest, latest = nothing(), nil, 0
  taken.bodies = bodies
  for i = 1, #list do
    local each, held = list[i].event, list[i].held
    local stop = queue.ms + want.lease
    if each.expires and not held.redriven then stop = math.min(stop, each.expires) end
    local last, due = remember(held)
    hand.lease(gen, each.id, { token = stamp.token(first + i - 1, want.nonce), attempt = held.attempt + 1, mark = "y",
      due = due, redriven = held.redriven, last = last }, stop, list[i].parked)
    taken.ids[i], taken.headers[i] = each.id, header(each, held)
    taken.attempts[i], taken.stops[i] = text(held.attempt + 1), text(stop)
    soonest, latest = math.min(soonest or stop, stop), math.max(latest, stop)
  end
  return taken, soonest, latest
end

-- When the next lease ends or the next parked one is due, as text; "" when there is neither.
local function next_due(gen)
  local soonest
  for _, index in ipairs({ "parked", "leased" }) do
    local first = gen.here[index] and redis.call("ZRANGE", gen.key[index], 0, 0, "WITHSCORES") or {}
    local at = tonumber(first[2])
    if at and (not soonest or at < soonest) then soonest = at end
  end
  return soonest and text(soonest) or ""
end

-- What those who wait for this subscription have to know after the pass.
local function wake(want, taken, left, soonest)
  if left and want.mode == "k" then
    ring.push(want.g)
  elseif left then
    ring.due(want.g, queue.ms)
  elseif want.mode == "k" or (want.mode == "w" and #taken.ids == 0) then
    plan.add("SADD", queue.key.idle, want.g)
  end
  if soonest then ring.due(want.g, soonest) end
end

-- Runs one bounded pass; `answered` is put in front of what the caller's slot keeps.
function M.run(at, answered)
  local want = arguments(at)
  local gen = generation.of(want.g)
  if want.limit == 0 then return reply("0", "0", "", nothing()) end
  local bound = math.max(want.limit, LAPSES)
  ring.hush(true)
  local full = lapse.run(gen, bound) == bound
  resolve.commit()
  ring.hush(false)

  local from = generation.cursor(redis.call("HGET", queue.key.cursor, want.g) or "")
    or generation.facts(want.g).born
  local p, p_more = parked(gen, want.limit)
  local q, reached, q_more = ahead(from, want.limit)
  local chosen, next_q, heavy = merged(p, q, want.limit)
  local list, bodies = with_bodies(chosen)
  local first = stamp.next(want.floor)
  local taken, soonest, latest = grant(want, gen, list, bodies, first)
  if q[next_q] then reached = q[next_q].before end
  if #list > 0 then
    resolve.earliest("due", want.g, soonest)
    plan.add("HSET", queue.key.cursor, want.g, generation.cursor_text(reached, queue.ms))
    plan.add("HSET", KEYS[1], "stamp", text(first + #list - 1))
    queue.remember(answered .. text(first) .. "|" .. pack.list(taken.ids), latest)
  elseif reached > from then
    local _, before = generation.cursor(redis.call("HGET", queue.key.cursor, want.g) or "")
    plan.add("HSET", queue.key.cursor, want.g, generation.cursor_text(reached, before or 0))
  end
  local short = #list < want.limit and not heavy
  local more = short and (full or p_more or q_more or #list < #chosen)
  wake(want, taken, #p + #q > #chosen or p_more or q_more or full, soonest)
  resolve.commit()
  return reply(text(first), more and "1" or "0", #list == 0 and want.mode ~= "" and next_due(gen) or "", taken)
end

return M
