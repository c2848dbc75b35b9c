-- number: whole numbers as text; Lua's own conversion keeps 14 digits only
local M = {}

local format = string.format

local latest, latest_text   -- one number is often asked for many times over

function M.text(value)
  if value ~= latest then
    latest, latest_text = value, format("%.0f", value)
  end
  return latest_text
end

return M
