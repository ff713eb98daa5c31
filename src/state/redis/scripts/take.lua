-- take: a ticket, for one of all who try.
--
-- KEYS[1]  the ticket, a hash: content, and until when it is valid
--
-- Result: both, and the ticket is gone; or nil.

assert(#KEYS == 1 and #ARGV == 0, 'take takes 1 key')

local ticket = redis.call('HMGET', KEYS[1], 'content', 'expires')
if not ticket[1] then return false end
redis.call('DEL', KEYS[1])
return ticket
