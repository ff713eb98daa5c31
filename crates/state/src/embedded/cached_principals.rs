//! Principals of the keys that were used last, in memory: making one costs as much as the rest of a decision, and
//! keeping it more than the rest of its key.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::key_record::KeyRecord;
use super::key_state::KeyState;
use domain::identity::Principal;

/// Principals that are kept: some 300 bytes each. In the second between two rounds of the writer there may be more.
const KEPT: usize = 65_536;

/// The keys that have a principal, in the order in which it was made.
#[derive(Default)]
pub(super) struct CachedPrincipals(Mutex<VecDeque<Arc<KeyRecord>>>);

impl CachedPrincipals {
    fn add(&self, record: Arc<KeyRecord>) {
        self.0.lock().push_back(record);
    }

    /// Forgets the oldest principals beyond those that are kept. One that is still in use is made again.
    pub(super) fn trim(&self) {
        self.trim_to(KEPT);
    }

    fn trim_to(&self, kept: usize) {
        let oldest: Vec<Arc<KeyRecord>> = {
            let mut records = self.0.lock();
            let excess = records.len().saturating_sub(kept);
            records.drain(..excess).collect()
        };
        // Without the lock of the list: a decision has that of its record when it takes it.
        oldest.iter().for_each(|record| record.state().principal = None);
    }
}

impl KeyRecord {
    /// The principal of requests with the key.
    pub(super) fn principal(self: &Arc<Self>, state: &mut KeyState, cached: &CachedPrincipals) -> Arc<Principal> {
        if let Some(principal) = &state.principal {
            return Arc::clone(principal);
        }
        let id = (!self.session_quota_key).then_some(self.id());
        let principal = Arc::new(state.entitlements.principal(id, state.terms.as_deref()));
        state.principal = Some(Arc::clone(&principal));
        cached.add(Arc::clone(self));
        principal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::fixture::Fixture;
    use crate::{Change, DecideRequest, Decision, RouteAccess};
    use domain::clock::Micros;
    use domain::key::KeyDigest;

    #[tokio::test]
    async fn oldest_principals_are_forgotten_and_made_again() {
        let digests = [b"one", b"two", b"six"].map(|text| KeyDigest::of(text));
        let fixture = Fixture::new().await;
        let state = &fixture.state;
        for digest in digests {
            state.change(Change::CreateKey { key: fixture.key(), digest }).await.unwrap();
        }
        let decide = |digest| {
            let access = RouteAccess::Everyone;
            match state.decide(DecideRequest { digest, id: None, access, client: None, now: Micros(2) }) {
                Decision::Admitted(admitted) => admitted.principal,
                Decision::Denied { refusal, .. } => panic!("{refusal:?}"),
            }
        };
        let [first, _, last] = digests.each_ref().map(decide);
        assert!(Arc::ptr_eq(&first, &decide(&digests[0])), "made once");
        state.directory.principals.trim_to(1);
        let has_principal = |digest| state.directory.by_digest(digest).unwrap().state().principal.is_some();
        assert_eq!(digests.each_ref().map(has_principal), [false, false, true]);
        assert!(Arc::ptr_eq(&last, &decide(&digests[2])));
        assert_eq!(decide(&digests[0]).key_id, first.key_id);
        state.directory.principals.trim_to(0);
        assert_eq!(digests.each_ref().map(has_principal), [false; 3], "the one that was made again, too");
    }
}
