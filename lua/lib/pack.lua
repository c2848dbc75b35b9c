-- pack: a list of byte strings as one: length ":" bytes, one after the other
local M = {}

function M.list(items)
  local parts, prefixes = {}, {}    -- most are of one length, and a number as text costs
  for i = 1, #items do
    local item = items[i]
    local prefix = prefixes[#item]
    if not prefix then
      prefix = #item .. ":"
      prefixes[#item] = prefix
    end
    parts[i] = prefix .. item
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
