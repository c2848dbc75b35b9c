-- config: the settings in a queue's root hash
--
-- `declared` is "1" once a client that declared a policy wrote to the queue; until then the stored fields are defaults
-- that the first declaring client replaces. The codec is fixed by the first write of all: the payloads are in it.
local refuse = require("lib.refuse")

local M = {}

-- Pairs of field and text from argument `at` on, `count` of them.
function M.pairs(at, count)
  local list = {}
  for i = 0, count - 1 do
    list[#list + 1] = { ARGV[at + 2 * i], ARGV[at + 2 * i + 1] }
  end
  return list
end

-- Refuses when what a client declared differs from what the queue holds.
function M.conflict(given)
  local fields = { "declared" }
  for i = 1, #given do fields[i + 1] = given[i][1] end
  local stored = redis.call("HMGET", KEYS[1], unpack(fields))
  local differ = {}
  for i = 1, #given do
    local field, wanted, held = given[i][1], given[i][2], stored[i + 1]
    if (stored[1] == "1" or field == "codec") and held and held ~= wanted then
      differ[#differ + 1] = field .. " is " .. (held == "" and "none" or held) .. ", not "
        .. (wanted == "" and "none" or wanted)
    end
  end
  if #differ > 0 then
    return refuse.word("CONFLICT", "the queue " .. KEYS[1] .. " is stored with other settings: "
      .. table.concat(differ, "; ") .. ". Declare the same, leave the fields out, or change them with alter()")
  end
end

return M
