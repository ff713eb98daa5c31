//! Containment of panics: a panic in one request harms no other request.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;

/// Returns a future that completes as the request's future does, or with none when that panics. All that the request's
/// future held is dropped then, which gives back the slot and closes the audit entry as `internal_error`.
///
/// The process's panic hook has logged the place and the message of the panic before: so no message may contain data of
/// a client.
pub(super) fn catch_panic<T>(answer: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    // Half-done changes belong to the request alone: state that requests share is atomic, or behind a lock whose next
    // holder restores it. Not an `async fn`: that has room for its argument beside what it awaits, twice the size here.
    AssertUnwindSafe(answer).catch_unwind().map(Result::ok)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::gateway::OpenExchanges;
    use crate::gateway::exchange::{CallerGrant, Exchange, Grant};
    use crate::gateway::rate_limit::RateLimitFields;
    use domain::budget::Cost;
    use domain::clock;
    use domain::identity::{AuthMethod, OrgId, UserId};
    use domain::key::{KeyDigest, KeyId, OrgTag, PlainKey};
    use domain::quota::Quota;
    use edge::forward::RequestFeatures;
    use edge::transport::ResetHandle;
    use journal::audit::{self, Filter, Journal, Outcome, Reader, Use};
    use platform::metrics::Metrics;
    use platform::request_body::UploadProgress;
    use state::{Admitted, Change, DecideRequest, Decision, Embedded, Key, Org, RouteAccess, State, User, embedded};

    async fn state_with_key(directory: &Path) -> (State, KeyDigest) {
        let settings = embedded::Settings {
            path: directory.join("state.db"),
            quota: Quota::DEFAULT,
            concurrent: 1,
            plans: state::LimitPlans::NONE,
        };
        let state = State::Embedded(Embedded::open(&settings).unwrap());
        let created = clock::now();
        let org = Org::new(OrgId::generate(), OrgTag::generate().unwrap(), "acme", created);
        let user = User::new(UserId::generate(), org.id, "ada@example.com", created);
        let plain = PlainKey::generate(KeyId::generate(org.tag).unwrap()).unwrap();
        let key = Key::new(plain.id(), org.id, user.id, "ci", created);
        let digest = plain.digest();
        for change in [Change::CreateOrg(org), Change::CreateUser(user), Change::CreateKey { key, digest }] {
            state.change(change).await.unwrap();
        }
        (state, digest)
    }

    async fn admitted(state: &State, digest: &KeyDigest) -> Admitted {
        let ask = DecideRequest {
            digest,
            id: None,
            access: RouteAccess::Everyone,
            cost: Cost::ONE,
            client: None,
            now: clock::now(),
        };
        match state.decide(ask).await.unwrap() {
            Decision::Admitted(admitted) => admitted,
            refused => panic!("{refused:?}"),
        }
    }

    fn journal(directory: &Path, metrics: &Metrics) -> Journal {
        let settings = audit::Settings {
            path: directory.join("audit"),
            durability: audit::Durability::Written,
            on_unavailable: audit::OnUnavailable::Refuse,
            segment_size: 1 << 20,
            segment_age: Duration::from_secs(60),
            retention_age: None,
            retention_size: None,
            retention_by_volume: false,
            retention_unshipped: 0,
            low_water: audit::LowWater::Percent(10),
            unknown_per_second: 1,
            addresses: journal::audit::Addresses::Full,
            refusals: journal::audit::RefusalRecords::Coalesced,
            checkpoints: None,
            gateway: "test".into(),
        };
        Journal::open(settings, metrics.audit.clone()).unwrap()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn panic_gives_back_the_slot_and_is_audited() {
        let directory = tempfile::tempdir().unwrap();
        let metrics = Metrics::new();
        let (state, digest) = state_with_key(directory.path()).await;
        let journal = journal(directory.path(), &metrics);
        let admitted = admitted(&state, &digest).await;
        let opening = Use {
            id: uuid::Uuid::now_v7(),
            time: clock::now(),
            number: Some(admitted.number),
            key_id: admitted.principal.key_id,
            user_id: Some(admitted.principal.user_id),
            org_id: Some(admitted.principal.org_id),
            auth_method: AuthMethod::ApiKey,
            ip: None,
            user_agent: None,
            action: "test",
            method: "GET",
            path: "/",
            provisional: false,
            cost: Cost::ONE,
            budget: None,
            trace_id: None,
        };
        let entry = journal.begin(&opening).await.unwrap();
        metrics.in_flight.inc();
        let open = OpenExchanges::new(Arc::clone(state.revocations()), metrics.terminated.clone());
        let rate_limit = RateLimitFields::new(admitted.rate_limit, admitted.principal.method);
        let grant = CallerGrant {
            permit: Some(admitted.permit),
            entry: Some(entry),
            is_unsent: false,
            open: open.register(admitted.principal, admitted.validity, ResetHandle::default(), 0),
            rate_limit,
            has_key_field: false,
            usage: None,
        };
        let exchange = Exchange {
            grant: Grant::Caller(grant),
            arrived: clock::now(),
            upload: UploadProgress::default(),
            body: None,
            features: RequestFeatures::default(),
            status: None,
            sent: 0,
            tunnelled: 0,
            trailers: None,
            metering: None,
            outcome: None,
            in_flight: metrics.in_flight.clone(),
            duration: metrics.route("test").duration.clone(),
            observed: None,
        };
        assert_eq!(state.in_flight(), 1);
        let answer: Option<()> = catch_panic(async move {
            let _held = exchange;
            tokio::task::yield_now().await;
            panic!("in the middle of a request");
        })
        .await;
        assert_eq!(answer, None);
        assert_eq!((state.in_flight(), metrics.in_flight.get()), (0, 0));
        journal.close().await;
        let records = Reader::open(&directory.path().join("audit")).unwrap();
        let records = records.list(&Filter::default(), 10, None).unwrap().records;
        let ended: Vec<_> = records.iter().map(|record| (record.outcome, record.status)).collect();
        assert_eq!(ended, [(Outcome::InternalError, Some(500))]);
        assert_eq!(catch_panic(async { 7 }).await, Some(7));
    }
}
