-- refuse: the one way to say no: an upper-case word that names an error class, then a sentence for people
local M = {}

function M.word(word, sentence)
  return redis.error_reply(word .. " " .. sentence)
end

function M.wrong_type(key, found, wanted)
  return M.word("CORRUPT", key .. " holds a " .. found .. " where a " .. wanted
    .. " belongs: move it away or delete it")
end

return M
