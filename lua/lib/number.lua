-- number: whole numbers as text; Lua's own conversion keeps 14 digits only
local M = {}

local format = string.format

function M.text(value)
  return format("%.0f", value)
end

return M
