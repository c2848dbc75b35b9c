-- number: whole numbers as text; Lua's own conversion keeps 14 digits only
local M = {}

local format = string.format

local HALF = 10000000       -- seven digits: each half of a number is one that every C library prints as an integer

-- "%.0f" is exact too, but does its work in multiple precision: five times the cost.
function M.text(value)
  if value < HALF and value >= 0 then return format("%d", value) end
  if value < 0 then return format("%.0f", value) end
  local low = value % HALF
  return format("%d%07d", (value - low) / HALF, low)
end

return M
