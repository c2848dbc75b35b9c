-- generation: one life of a named subscription: its facts, and the keys of its own
--
--   facts = born "," end "," removed "," name     born, end: stamps; end and removed are empty while it is active
--
-- An event is owed to a generation when born < sequence <= end.
local number = require("lib.number")
local queue = require("lib.queue")
local types = require("lib.types")

local M = {}

local facts = {}            -- generation -> facts, or false
local opened = {}           -- generation -> its keys

function M.text(born, stop, removed, name)
  return born .. "," .. stop .. "," .. removed .. "," .. name
end

local function parse(g, line)
  local born, stop, removed, name = string.match(line, "^(%d+),(%d*),(%d*),(.*)$")
  if not born then return false end
  return { g = g, born = tonumber(born), stop = tonumber(stop), removed = tonumber(removed), name = name }
end

-- Reads the facts of several generations.
function M.load(gs)
  local wanted = {}
  for i = 1, #gs do
    if facts[gs[i]] == nil then wanted[#wanted + 1] = gs[i] end
  end
  if #wanted == 0 then return end
  local found = queue.here.gens and redis.call("HMGET", queue.key.gens, unpack(wanted)) or {}
  for i = 1, #wanted do facts[wanted[i]] = found[i] and parse(wanted[i], found[i]) or false end
end

-- The facts of a generation, or false when it is gone for good.
function M.facts(g)
  if facts[g] == nil then M.load({ g }) end
  return facts[g]
end

-- After its facts were written.
function M.forget(g)
  facts[g] = nil
end

function M.active(g)
  local found = M.facts(g)
  return found and not found.removed or false
end

-- Every generation that there are facts of, at most a thousand active and a few removed ones.
function M.all()
  local found = queue.here.gens and redis.call("HGETALL", queue.key.gens) or {}
  local list = {}
  for i = 1, #found, 2 do
    facts[found[i]] = parse(found[i], found[i + 1])
    if facts[found[i]] then list[#list + 1] = facts[found[i]] end
  end
  return list
end

-- The name that marks a generation's key in the hash of what is broken.
function M.key_name(name, g)
  return name .. ":" .. g
end

-- The keys of a generation: `key` and `here` by column. Their types are proven by `prove`.
function M.of(g)
  local gen = opened[g]
  if not gen then
    gen = { g = g, key = {}, here = {}, rows = {}, stops = {} }
    opened[g] = gen
  end
  return gen
end

-- Proves the types of the columns of a generation; returns key, found type, wanted type of a wrong one. Of those that
-- are `seldom` there, none may be.
function M.prove(gen, names)
  for i = 1, #names do
    local name = names[i]
    gen.key[name] = gen.key[name] or KEYS[1] .. ":" .. M.key_name(name, gen.g)
  end
  if names.seldom then queue.look(names.seldom, gen) end
  for i = 1, #names do
    local name, key = names[i], gen.key[names[i]]
    if gen.here[name] == nil then
      local found = redis.call("TYPE", key)["ok"]
      if found ~= "none" and found ~= types.of[name] then return key, found, types.of[name] end
      gen.here[name] = found ~= "none"
    end
  end
end

-- The cursor: the sequence that it has come to, and when it last took something.
function M.cursor(line)
  local seq, taken = string.match(line or "", "^(%d+),?(%d*)$")
  return tonumber(seq), tonumber(taken) or 0
end

function M.cursor_text(seq, taken)
  return number.text(seq) .. "," .. number.text(taken)
end

return M
