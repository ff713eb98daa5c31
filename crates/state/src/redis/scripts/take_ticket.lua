-- take_ticket: takes a ticket; of all callers, one gets it.
--
-- KEYS[1]  the ticket, a hash: content, and the time until which it is valid
--
-- Result: both, and the ticket is deleted; or nil when there is none.

assert(#KEYS == 1 and #ARGV == 0, 'take_ticket takes 1 key')

local ticket = redis.call('HMGET', KEYS[1], 'content', 'expires')
if not ticket[1] then return false end
redis.call('DEL', KEYS[1])
return ticket
