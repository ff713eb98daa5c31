  # Part of nginx.conf, in its `http`: what the gate below needs.
  lua_package_path "/usr/share/lua/5.1/?.lua;;";
  lua_shared_dict rate 32m; lua_shared_dict concurrency 4m;
  lua_socket_log_errors off;
  init_by_lua_block {
    local ffi = require "ffi"
    ffi.cdef[[ unsigned char *SHA256(const unsigned char *d, size_t n, unsigned char *md); ]]
    local keys = {}
    local function unhex(text) return (text:gsub("..", function(pair) return string.char(tonumber(pair, 16)) end)) end
    for line in io.lines("@DIR@/keys.txt") do
      local digest, user, org = line:match("(%S+) (%S+) (%S+)")
      keys[unhex(digest)] = { user, org, "bucket:nginx:" .. user }
    end
    local digest = ffi.new("unsigned char[32]")
    local rate, concurrency, sub, var, C = ngx.shared.rate, ngx.shared.concurrency, string.sub, ngx.var, ffi.C
    local redis_port = @REDIS@
    local redis = redis_port and require "nginx.redis"
    local file = io.open("@DIR@/bucket.lua"); local script = file:read("*a"); file:close()
    local script_digest
    -- One script call, over a connection that is kept. True when there was a token.
    local function take_token(bucket)
      local connection = redis:new()
      connection:set_timeout(1000)
      if not connection:connect("127.0.0.1", redis_port) then return nil end
      script_digest = script_digest or connection:script("load", script)
      local result = connection:evalsha(script_digest, 1, bucket, @LIMIT@, @LIMIT@)
      connection:set_keepalive(60000, 200)
      return result and result[1] == 1
    end
    function gate()
      local field = var.http_authorization
      if not field or sub(field, 1, 7) ~= "Bearer " then return ngx.exit(401) end
      local text = sub(field, 8)
      C.SHA256(text, #text, digest)
      local key = keys[ffi.string(digest, 32)]
      if not key then return ngx.exit(401) end
      local in_flight = concurrency:incr(key[2], 1, 0)
      var.org = key[2]
      if in_flight > 1000 then return ngx.exit(429) end
      if redis then
        local taken = take_token(key[3])
        if taken == nil then return ngx.exit(503) end
        if not taken then return ngx.exit(429) end
      elseif rate:incr(key[1], 1, 0, 3600) > @LIMIT@ then return ngx.exit(429) end
      var.user = key[1]
    end
    function release()
      local org = var.org
      if org ~= "" then concurrency:incr(org, -1) end
    end
  }
