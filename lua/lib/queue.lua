-- queue: opens a queue for one call: the clock, the columns, the settings and the caller's last answer
--
-- Every call starts with ARGV = now, slot, number. `now` is a manual clock's time, or "" for the server's. A write
-- names its caller's slot and a number that only grows: the root keeps each slot's last number and answer, so that a
-- call whose reply was lost is answered again instead of run again.
local number = require("lib.number")
local plan = require("lib.plan")
local refuse = lazy("lib.refuse")
local types = lazy("lib.types")

local M = {
  first = 4,     -- the index of a script's own first argument
  answer = nil,  -- the first answer, when this call is a repeat
}

-- the fields of the root hash: those that the script asked for, and others as they are used
M.root = setmetatable({}, { __index = function(root, field)
  local value = redis.call("HGET", KEYS[1], field)
  root[field] = value
  return value
end })

-- the full key of each column
M.key = setmetatable({}, { __index = function(keys, name)
  local key = KEYS[1] .. ":" .. name
  keys[name] = key
  return key
end })

-- which columns exist: found out when somebody asks
M.here = setmetatable({}, { __index = function(here, name)
  local there = redis.call("EXISTS", M.key[name]) == 1
  here[name] = there
  return there
end })

local FORMAT = "1"
local REMEMBER_MS = 60000

local slotted = false       -- whether the caller's slot is there already

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

-- Reads further settings of an opened queue at once.
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

-- Why a root without a format can't be used.
local function no_root()
  if redis.call("EXISTS", KEYS[1]) == 0 then return refuse.word("NOQUEUE", "there is no queue at " .. KEYS[1]) end
end

-- Reads the settings of the root hash and proves the type of the named columns; returns a refusal or nil.
function M.open(names, fields)
  read_clock()
  local format, stored = read_root(fields)
  if format ~= FORMAT then
    return no_root() or refuse.word("CORRUPT", KEYS[1] .. " has format " .. (format or "none")
      .. ", this release reads format " .. FORMAT)
  end
  if #names > 0 then
    local refusal = types.prove(M, names)
    if refusal then return refusal end
  end
  slotted = stored ~= false
  if stored and ARGV[2] ~= "" then return last_answer(stored) end
end

-- Finds out at once that none of some columns exists, of the queue or of another `owner` of `key` and `here`. Any that
-- does leaves all of them to be asked for.
function M.look(names, owner)
  local key, here = (owner or M).key, (owner or M).here
  local unknown, keys, n = {}, {}, 0
  for i = 1, #names do
    if rawget(here, names[i]) == nil then
      n = n + 1
      unknown[n], keys[n] = names[i], key[names[i]]
    end
  end
  if n == 0 or redis.call("EXISTS", unpack(keys)) > 0 then return end
  for i = 1, n do here[unknown[i]] = false end
end

-- Runs a script. What it reads and plans it need not have proven: a key of a foreign type shows before the first
-- write, and is named then.
function M.run(script)
  local fine, reply = pcall(script)
  if fine then return reply end
  return types.explain(M, reply)
end

-- Notes that this call puts something into a column that may not have been there.
function M.filled(name)
  M.here[name] = true
  return M.key[name]
end

function M.slot()
  return "s." .. ARGV[2]
end

local function write_slot(call, answer, until_ms)
  local stop = math.max(M.ms + REMEMBER_MS, until_ms or 0)
  if slotted then plan.sizes[KEYS[1]] = math.huge end
  plan.add("HSET", KEYS[1], M.slot(), call .. "|" .. number.text(stop) .. "|" .. answer)
end

-- Plans that a repeat of this call gets `answer`; it is kept until a minute after, and never shorter than `until_ms`.
function M.remember(answer, until_ms)
  write_slot(ARGV[3], answer, until_ms)
end

-- Plans that the call which comes next in this slot is refused.
function M.refuse_next()
  write_slot(number.text(ARGV[3] + 1), "")
end

return M
