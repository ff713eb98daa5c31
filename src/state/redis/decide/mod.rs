//! Deciding requests: the optimistic call, the key cache, and what happens while Redis is away.

pub(super) mod call;
pub(super) mod decide_codec;
pub(super) mod key_cache;
pub(super) mod late_answer;
pub(super) mod offline;
