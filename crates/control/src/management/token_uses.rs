//! Last uses of management tokens: with which call, from where.
//!
//! Calls that change nothing leave no audit record, so each gateway keeps the last use of a token in memory, and stores
//! it in the state.
//!
//! - A call never waits for that, nor does it fail with it.
//! - A gateway stores one use of a token in ten minutes at most. What is shown is the newer one of its memory and of
//!   the state: the last use at another gateway, and that before a restart, may be up to ten minutes older than it was.
//! - Memory has one entry for each token that was used, until the token expires.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Management, Program};
use domain::clock::Micros;
use domain::management_token::{ManagementToken, TokenId, TokenUse};
use journal::audit::user_agent_text;
use state::{Change, ChangeError, MAX_TOKENS, Unavailable};

/// Time from a use that is stored to the next one.
const STORED_EVERY: Duration = Duration::from_secs(600);
/// Time from a use that could not be stored to the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Last uses at this gateway.
#[derive(Debug, Default)]
pub(super) struct TokenUses(Mutex<BTreeMap<TokenId, Noted>>);

#[derive(Debug)]
struct Noted {
    last: TokenUse,
    /// Time from which the next use is stored.
    due: Micros,
    /// Expiry of the token.
    expires: Micros,
}

/// Notes that a program was authenticated, and stores it in the background when it is time to.
pub(crate) fn note_token_use(management: &Arc<Management>, program: &Program, now: Micros) {
    let Program { token, client, .. } = program;
    let user_agent = client.user_agent.as_deref().map(|agent| user_agent_text(agent).into_owned());
    let last = TokenUse { time: now, ip: client.ip, user_agent };
    if !management.token_uses.note(token, last.clone()) {
        return;
    }
    let (management, token, expires) = (Arc::clone(management), token.id, token.expires);
    tokio::task::spawn_local(async move {
        match management.state.change(Change::UseToken { token, last: Box::new(last), expires }).await {
            Ok(()) | Err(ChangeError::NotReplicated { .. }) => management.token_uses.set_stored(token, now),
            Err(error) => tracing::debug!(%error, %token, "the last use of a token could not be stored"),
        }
    });
}

/// The last uses of tokens, in their order.
pub(super) async fn last_uses(
    management: &Management,
    tokens: &[ManagementToken],
) -> Result<Vec<Option<TokenUse>>, Unavailable> {
    let ids: Vec<TokenId> = tokens.iter().map(|token| token.id).collect();
    let stored = management.state.token_uses(&ids).await?;
    Ok(ids.iter().zip(stored).map(|(id, stored)| management.token_uses.newest(*id, stored)).collect())
}

impl TokenUses {
    /// Notes a use. Returns whether it is time to store it.
    fn note(&self, token: &ManagementToken, last: TokenUse) -> bool {
        let mut noted = self.0.lock();
        let now = last.time;
        if noted.len() >= MAX_TOKENS as usize {
            noted.retain(|_, other| now < other.expires);
        }
        let before = noted.get(&token.id).map(|noted| noted.due);
        let is_due = before.is_none_or(|due| due <= now);
        let due = before.filter(|_| !is_due).unwrap_or(now.after(RETRY_AFTER));
        noted.insert(token.id, Noted { last, due, expires: token.expires });
        is_due
    }

    /// Notes that a use of this time was stored.
    fn set_stored(&self, token: TokenId, at: Micros) {
        if let Some(noted) = self.0.lock().get_mut(&token) {
            noted.due = at.after(STORED_EVERY);
        }
    }

    /// The newer one of the use at this gateway and of the one in the state.
    fn newest(&self, token: TokenId, stored: Option<TokenUse>) -> Option<TokenUse> {
        let own = self.0.lock().get(&token).map(|noted| noted.last.clone());
        own.into_iter().chain(stored).max_by_key(|last| last.time)
    }
}

#[cfg(test)]
mod tests {
    use super::super::token::tests::token;
    use super::*;

    const MINUTE: u64 = 60_000_000;

    fn at(time: u64) -> TokenUse {
        TokenUse { time: Micros(time), ip: None, user_agent: None }
    }

    #[test]
    fn one_use_in_ten_minutes_is_stored_and_one_in_a_minute_while_that_fails() {
        let (uses, token) = (TokenUses::default(), token(None));
        let due = |minute: u64| uses.note(&token, at(minute * MINUTE));
        assert_eq!([0, 0, 1, 1, 2].map(due), [true, false, true, false, true]);
        uses.set_stored(token.id, Micros(2 * MINUTE));
        assert_eq!(
            (2..25).filter(|minute| due(*minute)).count(),
            13,
            "again each minute from 12 on, without an answer"
        );
        uses.set_stored(token.id, Micros(24 * MINUTE));
        let stored = (25..125).filter(|minute| {
            let is_due = due(*minute);
            if is_due {
                uses.set_stored(token.id, Micros(minute * MINUTE));
            }
            is_due
        });
        assert_eq!(stored.count(), 10);
    }

    #[test]
    fn newer_one_of_memory_and_state_is_shown() {
        let (uses, token) = (TokenUses::default(), token(None));
        assert_eq!(uses.newest(token.id, None), None);
        assert_eq!(uses.newest(token.id, Some(at(3))), Some(at(3)));
        uses.note(&token, at(5));
        assert_eq!(uses.newest(token.id, Some(at(3))), Some(at(5)));
        assert_eq!(uses.newest(token.id, Some(at(7))), Some(at(7)));
    }
}
