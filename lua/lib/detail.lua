-- detail: what went wrong, as text: length ":" type length ":" message traceback; never decoded further
local M = {}

local sub, byte, match = string.sub, string.byte, string.match

function M.text(kind, message, traceback)
  return #kind .. ":" .. kind .. #message .. ":" .. message .. (traceback or "")
end

local function split(detail)
  local size, at = match(detail, "^(%d+):()")
  if not size then return "", "", "" end
  local kind = sub(detail, at, at + size - 1)
  local length, start = match(detail, "^(%d+):()", at + size)
  if not length then return kind, "", "" end
  return kind, sub(detail, start, start + length - 1), sub(detail, start + length)
end

-- The first `size` bytes, less what would cut a character in two.
local function head_of(text, size)
  if #text <= size then return text end
  while size > 0 and (byte(text, size + 1) or 0) >= 0x80 and byte(text, size + 1) < 0xC0 do size = size - 1 end
  return sub(text, 1, size)
end

local function tail_of(text, size)
  if #text <= size then return text end
  local from = #text - size + 1
  while from <= #text and byte(text, from) >= 0x80 and byte(text, from) < 0xC0 do from = from + 1 end
  return sub(text, from)
end

function M.kind(detail)
  return (split(detail))
end

-- The type alone, for queues that keep no failure detail.
function M.bare(detail)
  return M.text((split(detail)), "")
end

-- At most `limit` bytes: the type, the message's start, the traceback's end.
function M.cut(detail, limit)
  local kind, message, traceback = split(detail)
  if #kind + #message + #traceback <= limit then return detail end
  kind = head_of(kind, limit)
  message = head_of(message, limit - #kind)
  return M.text(kind, message, tail_of(traceback, limit - #kind - #message))
end

return M
