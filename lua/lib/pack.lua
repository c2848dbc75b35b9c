-- pack: a list of byte strings as one: length ":" bytes, one after the other
local M = {}

function M.list(items)
  local parts = {}
  for i = 1, #items do
    parts[i] = #items[i] .. ":" .. items[i]
  end
  return table.concat(parts)
end

function M.unlist(text, at)
  local items = {}
  at = at or 1
  while at <= #text do
    local size, start = string.match(text, "^(%d+):()", at)
    items[#items + 1] = string.sub(text, start, start + size - 1)
    at = start + size
  end
  return items
end

return M
