-- plan: writes of a transition, collected per command and key, then sent as one variadic command each
local M = {
  proven = {},  -- keys whose type is known to be right
  sizes = {},   -- how large keys are before the next commit, as far as that is known; math.huge: nothing new comes in
}

local CHUNK = 7000          -- unpack fails at 8,000 values
local SMALL = 64            -- what is this small may stay compact
local WIDE = 257            -- longer than any id

-- a read that fails on a key of another type
local PROBE = { HSET = "HLEN", HDEL = "HLEN", HINCRBY = "HLEN", ZADD = "ZCARD", ZREM = "ZCARD", RPUSH = "LLEN",
  LPUSH = "LLEN", LTRIM = "LLEN" }

local WIDENS = { HSET = true, ZADD = true }

local lists = {}            -- command -> key -> arguments
local order = {}            -- the lists as they were first used
local unlinked = {}         -- keys to be removed whole
local after                 -- what is to follow the next commit

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

-- Appends up to six arguments; without a variable number of them, which costs a table. Setting a nil would cost the
-- growth of one.
function M.add(command, key, a, b, c, d, e, f)
  local list = M.of(command, key)
  local n = #list
  list[n + 1] = a
  if b then list[n + 2] = b end
  if c then list[n + 3], list[n + 4] = c, d end
  if e then list[n + 5], list[n + 6] = e, f end
end

-- Appends a whole list of arguments.
function M.append(command, key, items)
  local list = M.of(command, key)
  local n = #list
  for i = 1, #items do list[n + i] = items[i] end
end

-- Fails on a key of a foreign type before anything is written; notes how large it is.
local function prove(list)
  local probe, key = PROBE[list.command], list.key
  if not probe or #list == 0 or M.proven[key] and not WIDENS[list.command] then return end
  list.size = M.sizes[key] or redis.call(probe, key)
  M.proven[key] = true
end

-- A compact hash or sorted set is searched from its start: 40 times slower at 250 fields. One wide member turns it into
-- a table, which it stays when that member goes again, as long as another one is there.
local function widen(list)
  if list.size > SMALL or list.size + #list / 2 <= SMALL then return end
  local member = string.rep(" ", WIDE)
  if list.command == "HSET" then
    redis.call("HSET", list.key, member, "", list[1], list[2])
    redis.call("HDEL", list.key, member)
  else
    redis.call("ZADD", list.key, "0", member, list[1], list[2])
    redis.call("ZREM", list.key, member)
  end
end

local function send(list)
  local command, key, size = list.command, list.key, #list
  if size == 0 then return end
  if WIDENS[command] then widen(list) end
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

-- Has `work` done once what is planned now is written.
function M.after(work)
  after = work
end

-- Sends everything that was planned and starts an empty plan. Fields are deleted last, and then keys: what one
-- transition of a call stores for a job, a later one of the same call may take away.
function M.commit()
  local todo, keys = order, unlinked
  lists, order, unlinked = {}, {}, {}
  for i = 1, #todo do prove(todo[i]) end
  for i = 1, #todo do
    if todo[i].command ~= "HDEL" then send(todo[i]) end
  end
  for i = 1, #todo do
    if todo[i].command == "HDEL" then send(todo[i]) end
  end
  for from = 1, #keys, CHUNK do
    redis.call("UNLINK", unpack(keys, from, math.min(from + CHUNK - 1, #keys)))
  end
  local work = after
  after, M.sizes = nil, {}
  if work then work() end
end

return M
