-- The scripts run inside the server: Lua 5.1 with these names given.
std = "lua51"
read_globals = { "redis", "KEYS", "ARGV", "lazy" }
max_line_length = 120
