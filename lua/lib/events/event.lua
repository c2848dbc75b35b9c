-- event: headers of events and outcomes of their obligations: read once a call, written once at its end
--
--   header   = status "," owed "," last "," dead "," settled ";" sequence "," created "," expires "," version "," size
--     status   a active; c completed, x expired; in upper case when not archived but held by dead obligations
--     owed     obligations without an outcome; last: when the latest outcome came; dead: outcomes that hold the record
--     version  the roster that it is owed to (lib/events/roster)
--   outcome  = a,ms,token acknowledged | w,ms waived | d,ms,attempt,token dead | x,… dead, and no longer holding |
--              r,ms,attempt dead, and now retried | p,token pending, and in hand when the event expired
local number = require("lib.number")
local queue = require("lib.queue")
local plan = require("lib.plan")

local M = {}

local known = {}            -- id -> event, or false where there is none
local touched = {}          -- events to be written
local text, match, sub = number.text, string.match, string.sub

function M.header(status, owed, last, settled, seq, created, expires, version, size)
  return status .. "," .. owed .. "," .. last .. ",0," .. settled .. ";" .. seq .. "," .. created .. "," .. expires
    .. "," .. version .. "," .. size
end

local function parse(id, header)
  local status, owed, last, dead, settled, at, seq, created, expires, version, size =
    match(header, "^([acxCX]),(%d+),(%d+),(%d+),(%d*);()(%d+),(%d+),(%d*),([%d.]*),(%d+)$")
  if not status then return { id = id, damaged = "its header is damaged" } end
  return { id = id, status = status, owed = tonumber(owed), last = tonumber(last), dead = tonumber(dead),
    settled = tonumber(settled), fixed = sub(header, at), seq = tonumber(seq), created = tonumber(created),
    expires = tonumber(expires), version = version, size = tonumber(size) }
end

local function format(event, status, settled)
  return status .. "," .. text(event.owed) .. "," .. text(event.last) .. "," .. text(event.dead) .. ","
    .. (settled and text(settled) or "") .. ";" .. event.fixed
end
-- The header as of another standing than the one that is stored.
M.shown = format

local function outcomes_key(event)
  return KEYS[1] .. ":ob:" .. event.id
end

-- Spares the events of which none has an outcome yet a look each.
local function look_for_outcomes(events)
  local keys = {}
  for i = 1, #events do keys[i] = outcomes_key(events[i]) end
  if #keys == 0 or redis.call("EXISTS", unpack(keys)) > 0 then return end
  for i = 1, #events do
    local event = events[i]
    event.rows, event.changed, event.stored = {}, {}, false
  end
end

-- Reads the headers of `ids`, those that are not known yet.
function M.load(ids)
  local wanted = {}
  for i = 1, #ids do
    if known[ids[i]] == nil then
      known[ids[i]] = false
      wanted[#wanted + 1] = ids[i]
    end
  end
  if #wanted == 0 then return end
  local headers, found = redis.call("HMGET", queue.key.ev, unpack(wanted)), {}
  for i = 1, #wanted do
    if headers[i] then
      local event = parse(wanted[i], headers[i])
      event.raw = headers[i]
      known[wanted[i]], found[#found + 1] = event, event
    end
  end
  look_for_outcomes(found)
end

-- The event, or nil. `damaged` says what is wrong with it.
function M.get(id)
  if known[id] == nil then M.load({ id }) end
  local event = known[id]
  return event and not event.gone and event or nil
end

-- Whether the outcomes can be read and written; to be asked before the first write of a call.
function M.sound(event)
  if event.rows == nil then
    local found = redis.call("TYPE", outcomes_key(event))["ok"]
    event.rows, event.changed = {}, {}
    event.stored = found ~= "none"
    if found ~= "none" and found ~= "hash" then
      event.stored, event.whole = false, true
      event.damaged = event.damaged or "its outcomes hold a " .. found .. " where a hash belongs"
      event.foreign = true
    end
  end
  return not event.damaged
end

-- The outcome of what generation `g` owes, or false.
function M.row(event, g)
  M.sound(event)
  local row = event.rows[g]
  if row == nil then
    row = event.stored and not event.whole and redis.call("HGET", outcomes_key(event), g)
    event.rows[g] = row
  end
  return row
end

-- Reads the outcomes of generations `from` to `last` of a list.
function M.load_rows(event, gs, from, last)
  M.sound(event)
  if not event.stored or event.whole then return end
  local found = redis.call("HMGET", outcomes_key(event), unpack(gs, from, last))
  for i = from, last do
    if event.rows[gs[i]] == nil then event.rows[gs[i]] = found[i - from + 1] end
  end
end

-- All outcomes by generation; false stands for none.
function M.rows(event)
  M.sound(event)
  if event.stored and not event.whole then
    local found = redis.call("HGETALL", outcomes_key(event))
    for i = 1, #found, 2 do
      if event.changed[found[i]] == nil then event.rows[found[i]] = found[i + 1] end
    end
    event.whole = true
  end
  return event.rows
end

function M.touch(event)
  if not event.touched then
    event.touched = true
    touched[#touched + 1] = event
  end
end

function M.set_row(event, g, row)
  M.sound(event)
  event.rows[g] = row
  event.changed[g] = row
  M.touch(event)
end

-- A damaged event starts again from what is left of it.
function M.rebuild(event, facts)
  for name, value in pairs(facts) do event[name] = value end
  event.damaged = nil
  M.touch(event)
end

function M.remove(event)
  event.gone = true
  M.touch(event)
end

local function write(event)
  local key = outcomes_key(event)
  if event.gone then
    plan.add("HDEL", queue.key.ev, event.id)
    plan.add("HDEL", queue.key.body, event.id)
    if event.stored ~= false or event.foreign then plan.unlink(key) end
    return
  end
  if event.foreign then redis.call("UNLINK", key) end
  if event.stored == false then plan.sizes[key] = 0 end
  plan.add("HSET", queue.key.ev, event.id, format(event, event.status, event.settled))
  for g, row in pairs(event.changed or {}) do
    plan.add("HSET", key, g, row)
    event.stored = true
  end
  event.changed, event.foreign = {}, nil
end

-- Plans the writes of all that changed.
function M.done()
  for i = 1, #touched do
    touched[i].touched = nil
    write(touched[i])
  end
  touched = {}
end

-- The fields of an outcome: letter, ms, attempt, token.
function M.outcome(row)
  local letter = sub(row, 1, 1)
  if letter == "a" then
    local at, token = match(row, "^a,(%d+),(.*)$")
    return letter, tonumber(at), nil, token
  elseif letter == "p" then
    return letter, nil, nil, sub(row, 3)
  end
  local at, attempt, token = match(row, "^%a,(%d+),?(%d*),?(.*)$")
  return letter, tonumber(at), tonumber(attempt), token
end

return M
