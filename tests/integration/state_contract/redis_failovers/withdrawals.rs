//! Restarts of Redis that lose what a person does first in an incident: a management token is revoked, a key disabled
//! or rotated, a user or an organization suspended, a federation rule removed. All of it holds again once a gateway
//! that knows it has noticed the restart, at those as well that know nothing of it; what was taken back is not
//! repeated.

use domain::budget::Cost;
use domain::clock;
use domain::identity::UserId;
use domain::key::policy::{DisabledBy, Field, PolicyPatch};
use domain::management_token::ManagementToken;
use domain::refusal::Refusal;
use state::redis::Servers;
use state::{
    Change, DecideRequest, Decision, FederationRule, LastRotation, PolicyScope, RevocationEntry, RouteAccess,
    RuleChange, State, Unavailable,
};

use super::{close, is_admitted, open};
use crate::migration::records::new_token;
use crate::state_contract::cases_federation::new_rule;
use crate::state_contract::cases_policy::disabled;
use crate::state_contract::fixture::{Fixture, HeldKey, fixture_with_key, new_key};
use crate::state_contract::redis::at;
use crate::state_contract::redis::enter_with_server;
use crate::state_contract::runtime::block_on;
use crate::support::redis::Redis;
use crate::support::until;

/// Subjects of withdrawals that can be taken back: a key that is disabled, one of a user who is suspended, and one of
/// an organization that is.
struct Held {
    disabled: HeldKey,
    of_user: HeldKey,
    user: UserId,
    fixture: Fixture,
    of_org: HeldKey,
    org: Fixture,
}

impl Held {
    async fn create(state: &State) -> Self {
        let (fixture, disabled) = fixture_with_key(state).await;
        let user = fixture.user(state, "suspended@example.com").await;
        let of_user = fixture.key_of(state, user).await;
        let (org, of_org) = fixture_with_key(state).await;
        Self { disabled, of_user, user, fixture, of_org, org }
    }

    fn withdrawals(&self) -> [Change; 3] {
        [
            set_policy(&self.disabled, disabled(clock::now(), DisabledBy::Leak)),
            Change::suspend_user(self.fixture.org, self.user, Some(clock::now()), false),
            Change::suspend_org(self.org.org, true),
        ]
    }

    fn returns(&self) -> [Change; 3] {
        let enabled = PolicyPatch { disabled: Field::Clear, enabled: Some(clock::now()), ..PolicyPatch::default() };
        [
            set_policy(&self.disabled, enabled),
            Change::suspend_user(self.fixture.org, self.user, None, false),
            Change::suspend_org(self.org.org, false),
        ]
    }

    async fn refusals(&self, state: &State) -> Result<[Option<Refusal>; 3], Unavailable> {
        let mut refusals = [None; 3];
        for (refusal, HeldKey { digest, id }) in refusals.iter_mut().zip([&self.disabled, &self.of_user, &self.of_org])
        {
            let (id, access, now) = (Some(*id), RouteAccess::Everyone, clock::now());
            *refusal =
                match state.decide(DecideRequest { digest, id, access, cost: Cost::ONE, client: None, now }).await? {
                    Decision::Admitted(_) => None,
                    Decision::Denied { refusal, .. } => Some(refusal),
                };
        }
        Ok(refusals)
    }
}

const WITHDRAWN: [Option<Refusal>; 3] =
    [Some(Refusal::KeyDisabled), Some(Refusal::UserSuspended), Some(Refusal::OrgSuspended)];

fn set_policy(key: &HeldKey, patch: PolicyPatch) -> Change {
    Change::set_key_policy(key.id, Box::new(patch), PolicyScope::Operator)
}

/// Subjects of what is final, and of a rotation without overlap.
struct Final {
    token: ManagementToken,
    rule: FederationRule,
    replaced: HeldKey,
    current: HeldKey,
}

impl Final {
    async fn create(state: &State) -> Self {
        let token = new_token("leaked");
        state.change(Change::CreateToken(Box::new(token.clone()))).await.unwrap();
        let (_, rule) = new_rule(state).await;
        let (fixture, replaced) = fixture_with_key(state).await;
        let (_, digest) = new_key(fixture.tag, fixture.org, fixture.user);
        Self { token, rule, replaced, current: HeldKey { id: replaced.id, digest } }
    }

    async fn withdraw(&self, state: &State) {
        let at = clock::now();
        let HeldKey { id: key, digest } = self.current;
        for change in [
            Change::RevokeToken { token: self.token.id, at },
            Change::FederationRule(RuleChange::Remove { org: self.rule.org, name: self.rule.name.clone() }),
            Change::RotateKey { key, digest, at, previous_until: at, last: LastRotation::Any },
        ] {
            state.change(change).await.unwrap();
        }
    }

    /// Returns whether all of it holds at a gateway.
    async fn holds(&self, state: &State) -> bool {
        let Ok(Some(token)) = state.management_token(self.token.id).await else { return false };
        let has_rule = !matches!(state.federation_rule(self.rule.org, &self.rule.name).await, Ok(None));
        let is_rotated = is_admitted(state, &self.current).await == Ok(true);
        token.revoked.is_some() && !has_rule && is_rotated && is_admitted(state, &self.replaced).await == Ok(false)
    }
}

/// Two gateways that follow the log: one that begins to later has what was before as a gap.
fn gateways(server: &Redis) -> [State; 2] {
    let servers = Servers::Single(at(server));
    let gateways = [open(&servers), open(&servers)];
    for gateway in &gateways {
        let log = gateway.revocations();
        until("the gateway follows the log", || (*log.subscribe().borrow() > 0).then_some(()));
    }
    gateways
}

#[test]
fn withdrawals_of_an_incident_survive_a_restart_with_earlier_data() {
    let (_entered, server) = enter_with_server();
    let [knows, other] = gateways(&server);
    let (held, fixed) = block_on(async { (Held::create(&knows).await, Final::create(&knows).await) });
    let back = block_on(Held::create(&knows));
    server.cli::<()>(&["SAVE"]);
    block_on(async {
        fixed.withdraw(&knows).await;
        for change in held.withdrawals().into_iter().chain(back.withdrawals()).chain(back.returns()) {
            knows.change(change).await.unwrap();
        }
        assert!(fixed.holds(&knows).await);
        assert_eq!((held.refusals(&knows).await, back.refusals(&knows).await), (Ok(WITHDRAWN), Ok([None; 3])));
    });
    // One that has read the withdrawals alone would repeat them. The log is read in its order.
    let (_, last) = block_on(fixture_with_key(&knows));
    block_on(knows.change(Change::RevokeKey { key: last.id, at: clock::now() })).unwrap();
    let log = other.revocations();
    let has_read = || log.range(0, *log.subscribe().borrow()).contains(&RevocationEntry::Key(last.id));
    until("the other gateway has read it", || has_read().then_some(()));
    server.restart();
    // A gateway that has read nothing of it.
    let new = open(&Servers::Single(at(&server)));
    until("final withdrawals hold again", || block_on(fixed.holds(&new)).then_some(()));
    until("the others hold again", || (block_on(held.refusals(&new)) == Ok(WITHDRAWN)).then_some(()));
    assert_eq!(block_on(back.refusals(&new)), Ok([None; 3]), "what was taken back is not repeated");
    until("they hold at the first gateway", || block_on(fixed.holds(&knows)).then_some(()));
    // A token that is known to be revoked changes nothing, whatever the server says.
    let program = format!("token:{}", fixed.token.id);
    let changed = block_on(knows.change(Change::suspend_org(back.org.org, true).by(&program)));
    assert!(matches!(changed, Err(state::ChangeError::TokenEnded(_))), "{changed:?}");
    close(&[&knows, &other, &new]);
}

/// The restart loses the taking back alone: what came after the withdrawal stands as the server has it.
#[test]
fn withdrawal_that_was_taken_back_and_made_again_is_told_from_the_first() {
    let (_entered, server) = enter_with_server();
    let [knows, other] = gateways(&server);
    let held = block_on(Held::create(&knows));
    let make = |changes: [Change; 3]| {
        changes.into_iter().for_each(|change| block_on(knows.change(change)).unwrap());
    };
    make(held.withdrawals());
    make(held.returns());
    server.cli::<()>(&["SAVE"]);
    make(held.withdrawals());
    server.restart();
    until("the second one holds again", || (block_on(held.refusals(&other)) == Ok(WITHDRAWN)).then_some(()));
    make(held.returns());
    assert_eq!(block_on(held.refusals(&other)), Ok([None; 3]));
    close(&[&knows, &other]);
}
