-- retry: the wait before the next attempt, from the stored text of redisq.policy.Backoff
local M = {}

local PRIME = 4294967291

-- factor ^ exponent by squaring: the same steps, and so the same bits, as the client's; infinity at the top.
local function power(factor, exponent)
  local result = 1
  while exponent > 0 do
    if exponent % 2 == 1 then result = result * factor end
    exponent = math.floor(exponent / 2)
    factor = factor * factor
  end
  return result
end

-- 0 to below 1 from the id and the attempt, the same as the client's; every step is exact in doubles. The empty rounds
-- spread what the last byte changed.
local function chance(id, attempt)
  local text, hash = id .. ":" .. string.format("%.0f", attempt), 0
  for i = 1, #text + 3 do
    hash = (hash * 1664525 + (string.byte(text, i) or 0) + 1) % PRIME
  end
  return hash / PRIME
end

local function step(steps, attempt)
  local nth, last = 0, 0
  for each in string.gmatch(steps, "%d+") do
    nth, last = nth + 1, tonumber(each)
    if nth == attempt then break end
  end
  return last
end

-- Milliseconds to wait after attempt `attempt` (1-based) of job `id`.
function M.delay(backoff, id, attempt)
  local ms, jitter
  if string.sub(backoff, 1, 1) == "e" then
    local base, factor, cap, share = string.match(backoff, "^e,([^,]+),([^,]+),([^,]+),([^,]+)$")
    base, factor, cap, jitter = tonumber(base), tonumber(factor), tonumber(cap), tonumber(share)
    ms = base == 0 and 0 or math.min(cap, base * power(factor, attempt - 1))
  else
    local share, steps = string.match(backoff, "^d,([^,]+),(.+)$")
    jitter = tonumber(share)
    ms = step(steps, attempt)
  end
  if jitter > 0 then ms = ms * (1 - jitter * chance(id, attempt)) end
  return math.ceil(ms)
end

return M
