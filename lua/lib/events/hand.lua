-- hand: what a generation has in hand: events leased to its takers, and those handed back or lapsed
--
--   lease:<g>  id -> token "," attempt "," mark "," due "," redriven "," last
--     mark      y leased, r released, f failed, l lapsed, q retried and not taken yet
--     due       when it can be taken again, as it was answered to a release or failure; redriven: "r" or ""
--     last      of a leased or retried one: the mark and token before ("d" when that died), as long as nothing newer
--               settled that token; due belongs to it
--
-- An id is in leased:<g> by its lease's end, or in parked:<g> by the time from which it can be taken again.
local number = require("lib.number")
local plan = require("lib.plan")

local M = {}

local match = string.match

function M.parse(line)
  local token, attempt, mark, due, redriven, last = match(line, "^([^,]*),(%d+),([yrflq]),(%d*),(r?),(.*)$")
  if not token then return nil end
  return { token = token, attempt = tonumber(attempt), mark = mark, due = due, redriven = redriven == "r", last = last }
end

function M.text(held)
  return held.token .. "," .. number.text(held.attempt) .. "," .. held.mark .. "," .. held.due .. ","
    .. (held.redriven and "r" or "") .. "," .. held.last
end

-- What was not in hand yet; `last` as above.
function M.new(redriven, last)
  return { token = "", attempt = 0, mark = "q", due = "", redriven = redriven, last = last or "" }
end

-- Reads what `gen` has in hand of `ids`.
function M.load(gen, ids)
  local wanted = {}
  for i = 1, #ids do
    if gen.rows[ids[i]] == nil then
      gen.rows[ids[i]] = false
      wanted[#wanted + 1] = ids[i]
    end
  end
  if #wanted == 0 then return end
  local rows = gen.here.lease and redis.call("HMGET", gen.key.lease, unpack(wanted)) or {}
  local stops = gen.here.leased and redis.call("ZMSCORE", gen.key.leased, unpack(wanted)) or {}
  for i = 1, #wanted do
    gen.rows[wanted[i]] = rows[i] and M.parse(rows[i]) or false
    gen.stops[wanted[i]] = stops[i] and tonumber(stops[i])
  end
end

-- What it has in hand of `id`, or false; and the end of the lease, if there is one.
function M.get(gen, id)
  if gen.rows[id] == nil then M.load(gen, { id }) end
  return gen.rows[id], gen.stops[id]
end

local function put(gen, id, held)
  gen.rows[id] = held
  gen.here.lease = true
  plan.add("HSET", gen.key.lease, id, M.text(held))
end

-- Under a lease until `stop`, from the log or from parked.
function M.lease(gen, id, held, stop, parked)
  put(gen, id, held)
  gen.stops[id] = stop
  gen.here.leased = true
  if parked then plan.add("ZREM", gen.key.parked, id) end
  plan.add("ZADD", gen.key.leased, number.text(stop), id)
end

-- From a lease to parked, from `at` on.
function M.park(gen, id, held, at)
  put(gen, id, held)
  gen.stops[id] = nil
  gen.here.parked = true
  plan.add("ZREM", gen.key.leased, id)
  plan.add("ZADD", gen.key.parked, number.text(at), id)
end

-- Out of the index of leases; the row stays until the event is settled.
function M.unlease(gen, id, held)
  if held then put(gen, id, held) end
  gen.stops[id] = nil
  plan.add("ZREM", gen.key.leased, id)
end

-- A retried obligation, which was not in hand; `token` is the one that it died under.
function M.redrive(gen, id, at, token)
  gen.here.parked = true
  put(gen, id, M.new(true, token ~= "" and "d" .. token or ""))
  plan.add("ZADD", gen.key.parked, number.text(at), id)
end

-- Out of hand altogether.
function M.out(gen, id)
  gen.rows[id] = false
  if gen.stops[id] then
    gen.stops[id] = nil
    plan.add("ZREM", gen.key.leased, id)
  else
    if gen.here.leased then plan.add("ZREM", gen.key.leased, id) end
    if gen.here.parked then plan.add("ZREM", gen.key.parked, id) end
  end
  plan.add("HDEL", gen.key.lease, id)
end

return M
