//! The look at what ends soon: keys and management tokens that expire, and keys that are disabled for being
//! unused. Each is announced seven days before, and what expires once more a day before.
//!
//! - A look is made once a day, so it announces what is due until the next one: a notice is early by up to a day, and
//!   never late while gateways run.
//! - An expiry that moves, and a use of a key, have announcements of their own.

use std::time::Duration;

use uuid::Uuid;

use super::announcement::{Announcement, KEY_EXPIRING, KEY_UNUSED, TOKEN_EXPIRING};
use super::audited_change::Target;
use super::unused_keys::{is_active, last_use, unused_keys_of};
use super::{Management, ManagementError};
use domain::clock::Micros;
use domain::management_token::ManagementToken;
use state::{KeyList, Org};

/// Organizations and keys that are read at a time.
const PAGE: usize = 500;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Times before an end at which it is announced, the last one first, with their names in records.
const NOTICES: [(Duration, &str); 2] = [(DAY, "1d"), (Duration::from_secs(7 * 24 * 3600), "7d")];
/// Announcements of one look. More are an import, or a clock that is wrong, and not for people to read one by one.
const MOST: u64 = 10_000;

/// Announces the ends that are due at `now`, a time of this process. Returns the number of announcements that this
/// gateway has recorded. Repeating the look, also at several gateways, announces nothing twice.
///
/// # Errors
/// The state or the journal is unavailable: the rest is announced by the next look.
pub async fn announce_ends(management: &Management, now: Micros) -> Result<u64, ManagementError> {
    if !management.state.knows_time() {
        return Ok(0);
    }
    let mut look = Look { management, now: management.state.time(now), recorded: 0 };
    for token in management.state.management_tokens().await? {
        look.announce_token(&token).await?;
    }
    let mut from = Some(0);
    while let Some(position) = from {
        let page = management.state.page_of_orgs(position, PAGE).await?;
        for org in page.items {
            look.announce_keys(&org).await?;
        }
        from = page.next;
    }
    let is_limited = look.recorded >= MOST;
    management.announcements_limited.set(is_limited.into());
    if is_limited {
        tracing::error!(
            announced = look.recorded,
            "more keys and tokens end soon than one look announces; the audit lacks records of the others. Look at \
             them with `keygate key list`"
        );
    }
    Ok(look.recorded)
}

struct Look<'a> {
    management: &'a Management,
    now: Micros,
    recorded: u64,
}

impl Look<'_> {
    async fn announce_token(&mut self, token: &ManagementToken) -> Result<(), ManagementError> {
        if !token.is_live(self.now) {
            return Ok(());
        }
        let Some(notice) = due(token.expires, token.created, self.now, &NOTICES) else { return Ok(()) };
        let target = Target { org: token.org, user: None, key: None };
        self.announce(TOKEN_EXPIRING, token.id.as_str(), (notice, token.expires), target).await
    }

    async fn announce_keys(&mut self, org: &Org) -> Result<(), ManagementError> {
        let unused = unused_keys_of(self.management, org);
        let list = KeyList { org: org.id, owner: None, newest_first: false };
        let mut after = None;
        loop {
            let page = self.management.state.page_of_keys(list, after, PAGE).await?;
            for key in page.items.iter().filter(|key| is_active(key)) {
                let expires = key.policy.as_deref().and_then(|policy| policy.expires);
                if expires.is_some_and(|expires| expires <= self.now) {
                    continue;
                }
                if let Some(expires) = expires
                    && let Some(notice) = due(expires, key.created, self.now, &NOTICES)
                {
                    self.announce(KEY_EXPIRING, key.id.as_str(), (notice, expires), Target::of_key(key)).await?;
                }
                if let Some((unused, last)) = unused.map(|unused| (unused, last_use(key)))
                    && let Some(notice) = due(last.after(unused), last, self.now, &NOTICES[1..])
                {
                    let end = last.after(unused);
                    self.announce(KEY_UNUSED, key.id.as_str(), (notice, end), Target::of_key(key)).await?;
                }
            }
            if page.next.is_none() || self.recorded >= MOST {
                return Ok(());
            }
            after = page.next;
        }
    }

    async fn announce(
        &mut self,
        action: &str,
        subject: &str,
        (notice, end): (&str, Micros),
        target: Target,
    ) -> Result<(), ManagementError> {
        if self.recorded >= MOST {
            return Ok(());
        }
        let path = match target.key {
            Some(_) => format!("{action}/{notice}/{end}"),
            None => format!("{action}/{subject}/{notice}/{end}"),
        };
        let announcement = Announcement { action, path, target, until: end };
        self.recorded += u64::from(announcement.record(self.management, Uuid::now_v7(), self.now).await?);
        Ok(())
    }
}

/// The notice of an end that is due before the next look, the last one of several; none when it is over, or began to
/// count from `begun` when the notice would have been due already.
fn due(end: Micros, begun: Micros, now: Micros, notices: &[(Duration, &'static str)]) -> Option<&'static str> {
    let is_due = |before: Duration| {
        let at = end.before(before);
        at > begun && at <= now.after(DAY)
    };
    let found = notices.iter().find(|(before, _)| is_due(*before));
    found.filter(|_| now < end).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(number: u64) -> Micros {
        Micros(number * 24 * 3600 * 1_000_000)
    }

    #[test]
    fn notice_is_due_before_the_next_look_and_the_last_one_counts() {
        let due = |begun, now| due(day(100), day(begun), day(now), &NOTICES);
        let notices: Vec<_> = (90..=101).map(|now| due(1, now)).collect();
        let (none, week, last) = (None, Some("7d"), Some("1d"));
        assert_eq!(notices, [none, none, week, week, week, week, week, week, last, last, none, none]);
        assert_eq!(due(93, 94), None, "it was made seven days before its end");
        assert_eq!(due(93, 98), last);
        assert_eq!(due(99, 99), None, "it lives for a day");
    }
}
