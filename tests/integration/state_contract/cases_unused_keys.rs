//! The sweep of unused keys: a use, a creation or an enabling since the time in question keeps the key.

use std::time::Duration;

use domain::clock::{self, Micros};
use domain::key::policy::{Disabled, DisabledBy, Field, PolicyPatch};
use domain::refusal::Refusal;
use state::{Change, ChangeError, Decision, PolicyScope, State};

use super::TOKEN;
use super::cases_policy::{disabled, set};
use super::fixture::{HeldKey, admit, decide, fixture_with_key, record, refuse};
use super::runtime::block_on;

/// Change that a sweep makes to a key that it found unused since a time.
pub(super) fn sweep(key: &HeldKey, since: Micros) -> Change {
    let patch = disabled(since, DisabledBy::Unused);
    Change::set_key_policy(key.id, Box::new(patch), PolicyScope::Unused(since))
}

async fn is_kept(state: &State, key: &HeldKey, since: Micros) -> bool {
    match state.change(sweep(key, since)).await {
        Ok(()) => false,
        Err(ChangeError::InUse(id)) if id == key.id => true,
        Err(error) => panic!("{error:?}"),
    }
}

pub(super) async fn unused_key_is_disabled_unless_it_was_used_created_or_enabled(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let never_used = fixture.key(state).await;
    let (now, later) = (clock::now(), clock::now().after(10 * TOKEN));
    assert!(is_kept(state, &never_used, record(state, &never_used).await.created).await, "it was created then");
    admit(state, &key, later).await;
    assert!(is_kept(state, &key, later).await, "it was used then");
    assert_eq!(record(state, &key).await.policy, None, "and is as before");
    admit(state, &key, later).await;
    for held in [&key, &never_used] {
        let since = Micros(later.0 + 1);
        assert!(!is_kept(state, held, since).await);
        assert_eq!(refuse(state, held, later).await, Refusal::KeyDisabled);
        let mark = record(state, held).await.policy.unwrap().disabled;
        assert_eq!(mark, Some(Disabled { at: since, by: DisabledBy::Unused }));
        assert!(!is_kept(state, held, Micros(since.0 + 1)).await, "twice is no error");
        assert_eq!(record(state, held).await.policy.unwrap().disabled, mark);
    }
    let enabled = later.after(TOKEN);
    set(state, &key, PolicyPatch { disabled: Field::Clear, enabled: Some(enabled), ..PolicyPatch::default() }).await;
    assert!(is_kept(state, &key, enabled).await, "it was enabled then");
    admit(state, &key, now.after(20 * TOKEN)).await;
}

/// A use and the sweep at once: either the key is used and kept, or refused and disabled.
pub(super) async fn use_at_the_time_of_the_sweep_wins_or_is_refused(state: &State) {
    let (fixture, _) = fixture_with_key(state).await;
    let mut used = 0;
    for round in 0..200_u64 {
        let key = fixture.key(state).await;
        let since = clock::now().after(Duration::from_secs(1));
        let (admitted, kept) = std::thread::scope(|scope| {
            let user = scope.spawn(|| {
                std::thread::sleep(Duration::from_micros(round * 7 % 300));
                matches!(block_on(decide(state, &key.digest, since)), Decision::Admitted(_))
            });
            let kept = block_on(is_kept(state, &key, since));
            (user.join().unwrap(), kept)
        });
        assert_eq!(admitted, kept, "round {round}");
        used += u32::from(admitted);
    }
    println!("{used} of 200 uses were before the sweep");
}
