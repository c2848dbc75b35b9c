-- queue: opens a queue for one call: the clock, the columns, the settings and the caller's last answer
--
-- Every call starts with ARGV = now, slot, number. `now` is a manual clock's time, or "" for the server's. A write
-- names its caller's slot and a number that only grows: the root keeps each slot's last number and answer, so that a
-- call whose reply was lost is answered again instead of run again.
local number = require("lib.number")
local refuse = lazy("lib.refuse")

local M = {
  first = 4,     -- the index of a script's own first argument
  root = {},     -- the settings that the script asked for, by field
  key = {},      -- the full key of each opened column
  here = {},     -- which of them exist
  answer = nil,  -- the first answer, when this call is a repeat
}

local FORMAT = "1"
local REMEMBER_MS = 60000

-- the columns of job queues; those that only event queues have are declared in lib/events/columns
M.types = {
  body = "hash", head = "hash", lease = "hash", meta = "hash", result = "hash", error = "hash",
  progress = "hash",
  attempts = "hash", history = "hash", ghost = "hash", broken = "hash",
  waiters = "hash", ready = "list", bell = "list",
  ranked = "zset", sched = "zset", leased = "zset", aging = "zset", seen = "zset", groups = "hash",
  completed = "zset", dead = "zset", cancelled = "zset", quarantined = "zset",
}

local function read_clock()
  if ARGV[1] ~= "" then
    M.ms = tonumber(ARGV[1])
    M.us = M.ms * 1000
  else
    local time = redis.call("TIME")
    M.us = time[1] * 1000000 + time[2]
    M.ms = math.floor(M.us / 1000)
  end
  M.now = number.text(M.ms)
end

-- Proves the type of each column, so that no later command can fail half way.
function M.columns(names)
  for i = 1, #names do
    local name = names[i]
    local key = KEYS[1] .. ":" .. name
    local found = redis.call("TYPE", key)["ok"]
    if found ~= "none" and found ~= M.types[name] then
      return refuse.wrong_type(key, found, M.types[name])
    end
    M.key[name] = key
    M.here[name] = found ~= "none"
  end
end

-- Reads further settings of an opened queue.
function M.settings(fields)
  local values = redis.call("HMGET", KEYS[1], unpack(fields))
  for i = 1, #fields do
    M.root[fields[i]] = values[i]
  end
end

local function read_root(fields)
  local wanted = { "format", "s." .. ARGV[2], unpack(fields) }
  local values = redis.call("HMGET", KEYS[1], unpack(wanted))
  for i = 3, #wanted do
    M.root[wanted[i]] = values[i]
  end
  return values[1], values[2]
end

local function last_answer(stored)
  local seen, rest = string.match(stored, "^(%d+)|%d*|(.*)$")
  local wanted = tonumber(ARGV[3])
  seen = tonumber(seen)
  if seen == wanted then
    M.answer = rest
  elseif seen and seen > wanted then
    return refuse.word("STALE", "call " .. ARGV[3] .. " came after a newer one of the same caller")
  end
end

-- Opens the columns and reads the settings of the root hash; returns a refusal or nil.
function M.open(names, fields)
  read_clock()
  local found = redis.call("TYPE", KEYS[1])["ok"]
  if found == "none" then
    return refuse.word("NOQUEUE", "there is no queue at " .. KEYS[1])
  elseif found ~= "hash" then
    return refuse.wrong_type(KEYS[1], found, "hash")
  end
  local refusal = M.columns(names)
  if refusal then return refusal end
  local format, stored = read_root(fields)
  if format ~= FORMAT then
    return refuse.word("CORRUPT", KEYS[1] .. " has format " .. (format or "none")
      .. ", this release reads format " .. FORMAT)
  end
  if stored and ARGV[2] ~= "" then return last_answer(stored) end
end

-- Notes that this call puts something into a column that may not have been there.
function M.filled(name)
  M.here[name] = true
  return M.key[name]
end

-- The value that makes a repeat of this call get `answer`; it is kept until a minute after, and never shorter than
-- `until_ms`.
function M.remembered(answer, until_ms)
  local stop = math.max(M.ms + REMEMBER_MS, until_ms or 0)
  return ARGV[3] .. "|" .. number.text(stop) .. "|" .. answer
end

function M.slot()
  return "s." .. ARGV[2]
end

return M
