-- plan: writes of a transition, collected per command and key, then sent as one variadic command each
local M = {}

local CHUNK = 7000          -- unpack fails at 8,000 values
local SMALL = 64            -- a hash this small may stay compact
local WIDE = string.rep(" ", 257)   -- longer than any id

local lists = {}            -- command -> key -> arguments
local order = {}            -- the lists as they were first used
local unlinked = {}         -- keys to be removed whole

-- The argument list of `command` on `key`: append to it.
function M.of(command, key)
  local by_key = lists[command]
  if not by_key then
    by_key = {}
    lists[command] = by_key
  end
  local list = by_key[key]
  if not list then
    list = { command = command, key = key }
    by_key[key] = list
    order[#order + 1] = list
  end
  return list
end

function M.add(command, key, ...)
  local list = M.of(command, key)
  local n = #list
  for i = 1, select("#", ...) do
    list[n + i] = (select(i, ...))
  end
end

-- A compact hash is searched from its start: 40 times slower at 250 fields. One wide field turns it into a table.
local function widen(key, added)
  local size = redis.call("HLEN", key)
  if size <= SMALL and size + added > SMALL then
    redis.call("HSET", key, WIDE, "")
    redis.call("HDEL", key, WIDE)
  end
end

local function send(list)
  local command, key, size = list.command, list.key, #list
  if size == 0 then return end
  if command == "HSET" then widen(key, size / 2) end
  if size <= CHUNK then
    redis.call(command, key, unpack(list))
  else
    for from = 1, size, CHUNK do
      redis.call(command, key, unpack(list, from, math.min(from + CHUNK - 1, size)))
    end
  end
end

-- Removes whole keys.
function M.unlink(...)
  for i = 1, select("#", ...) do unlinked[#unlinked + 1] = (select(i, ...)) end
end

-- Sends everything that was planned and starts an empty plan. Fields are deleted last, and then keys: what one
-- transition of a call stores for a job, a later one of the same call may take away.
function M.commit()
  local todo, keys = order, unlinked
  lists, order, unlinked = {}, {}, {}
  for i = 1, #todo do
    if todo[i].command ~= "HDEL" then send(todo[i]) end
  end
  for i = 1, #todo do
    if todo[i].command == "HDEL" then send(todo[i]) end
  end
  for from = 1, #keys, CHUNK do
    redis.call("UNLINK", unpack(keys, from, math.min(from + CHUNK - 1, #keys)))
  end
end

return M
