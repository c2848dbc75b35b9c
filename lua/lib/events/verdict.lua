-- verdict: ends leases by ack, fail or release, each against its own token; and says what became of a late one
--
-- Arguments: number of subscriptions, each as name and generation, then per settlement: verb, number of its
-- subscription, id, token, extra, data.
--   a ack
--   f fail     extra: retry wait in ms, "" for the policy's, "!" for no further attempt; data: detail
--   r release  extra: delay in ms or ""
-- Answers, one word each: A acknowledged, B already acknowledged, G gone, L lease lost, N not active, ! damaged;
--   p pending again, p<due> later, d dead.
local number = require("lib.number")
local stamp = require("lib.stamp")
local queue = require("lib.queue")
local refuse = require("lib.refuse")
local retry = lazy("lib.retry")
local event = require("lib.events.event")
local generation = require("lib.events.generation")
local hand = require("lib.events.hand")
local ring = require("lib.events.ring")
local resolve = require("lib.events.resolve")
local standing = lazy("lib.events.standing")

local M = {}

local WIDTH = 6
local text = number.text

-- The subscriptions that start at argument `at`: { g, active, keys }; and where they end. Or a refusal in front.
function M.subscriptions(at)
  local list, count = {}, tonumber(ARGV[at])
  for i = 1, count do
    local name, g = ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
    local gen, facts = generation.of(g), generation.facts(g)
    local key, found, wanted = generation.prove(gen, resolve.columns)
    if key then return refuse.wrong_type(key, found, wanted) end
    list[i] = { gen = gen, active = facts and not facts.removed and facts.name == name or false }
  end
  return nil, list, at + 2 * count + 1
end

-- Reads what items of { sub, id } are about.
function M.load(items)
  local ids, by_sub = {}, {}
  for i = 1, #items do
    local sub, id = items[i].sub, items[i].id
    ids[i] = id
    by_sub[sub] = by_sub[sub] or {}
    table.insert(by_sub[sub], id)
  end
  event.load(ids)
  for sub, own in pairs(by_sub) do hand.load(sub.gen, own) end
end

-- The lease of `id` under `token`, if it runs now.
function M.holds(sub, id, token)
  local held, stop = hand.get(sub.gen, id)
  return sub.active and held and held.mark == "y" and stop and stop > queue.ms and held.token == token and held
end

-- Whether the token was live when the event expired, which no sweep has seen yet.
local function live_at_deadline(each, held, stop, token)
  return held and held.mark == "y" and held.token == token and not held.redriven and each.expires
    and each.expires <= queue.ms and (not stop or stop == each.expires)
end

-- The first answer of the same verb, as long as nothing newer settled the token.
local function first_answer(each, status, sub, item, row)
  local letter, _, _, token = "", nil, nil, nil
  if row then letter, _, _, token = event.outcome(row) end
  if item.verb == "f" and token == item.token and (letter == "d" or letter == "x") then return "d" end
  local held = hand.get(sub.gen, each.id)
  if not held or (status ~= "a" and not held.redriven) then return "L" end
  local same = held.token == item.token and held.mark == item.verb
  if item.verb == "f" and held.last == "d" .. item.token then return "d" end
  if same or held.last == item.verb .. item.token then return "p" .. held.due end
  return "L"
end

-- The answer to a token that holds no lease now.
function M.late(sub, item)
  local each = event.get(item.id)
  if not each then return "G" end
  if not event.sound(each) then return "!" end
  local there, status = standing.present(each)
  if not there then return "G" end
  local row = event.row(each, sub.gen.g)
  if item.verb == "a" and row and string.sub(row, 1, 1) == "a" and select(4, event.outcome(row)) == item.token then
    return "B"
  end
  if not sub.active then return "L" end
  local held, stop = hand.get(sub.gen, item.id)
  if row == "p," .. item.token or live_at_deadline(each, held, stop, item.token) then return "N" end
  return first_answer(each, status, sub, item, row)
end

local function parked(sub, item, held, wait, attempt)
  local due = wait > 0 and text(queue.ms + wait) or ""
  hand.park(sub.gen, item.id, { token = held.token, attempt = attempt, mark = item.verb, due = due,
    redriven = held.redriven, last = "" }, queue.ms + wait)
  ring.due(sub.gen.g, queue.ms + wait)
  return "p" .. due
end

local function failed(each, sub, item, held)
  local most = tonumber(queue.root.max_attempts)
  if item.extra == "!" or (most and held.attempt >= most) then
    resolve.dead(each, sub.gen, queue.ms, held.attempt, held.token, item.data)
    return "d"
  end
  local wait = tonumber(item.extra) or retry.delay(queue.root.backoff, item.id, held.attempt)
  return parked(sub, item, held, wait, held.attempt)
end

local function apply(each, sub, item, held)
  if item.verb == "a" then
    resolve.acknowledged(each, sub.gen, held)
    return "A"
  elseif item.verb == "f" then
    return failed(each, sub, item, held)
  end
  return parked(sub, item, held, tonumber(item.extra) or 0, held.attempt - 1)
end

local function settled(sub, item)
  local held = M.holds(sub, item.id, item.token)
  local each = held and event.get(item.id)
  if not each then return M.late(sub, item) end
  if not event.sound(each) then return "!" end
  return apply(each, sub, item, held)
end

-- Releases what a take leased whose caller did not see it: `first` is the first stamp.
function M.give_back(sub, ids, first, nonce)
  local items = {}
  for i = 1, #ids do
    items[i] = { verb = "r", sub = sub, id = ids[i], token = stamp.token(first + i - 1, nonce), extra = "", data = "" }
  end
  M.load(items)
  for i = 1, #items do settled(sub, items[i]) end
end

-- Settles the items of the arguments from `at` on, in their order; returns an answer for each.
function M.run(at, subs)
  local items, answers = {}, {}
  for from = at, #ARGV, WIDTH do
    items[#items + 1] = { verb = ARGV[from], sub = subs[tonumber(ARGV[from + 1])], id = ARGV[from + 2],
      token = ARGV[from + 3], extra = ARGV[from + 4], data = ARGV[from + 5] }
  end
  if #items > 0 then M.load(items) end
  for i = 1, #items do answers[i] = settled(items[i].sub, items[i]) end
  return answers
end

return M
