//! One organization with one key, one session and one management token; and the settings of the gateways.

use std::sync::Arc;
use std::time::Duration;

use domain::budget::{Budget, Cost, Period, Spender};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::policy::{Disabled, DisabledBy, KeyPolicy};
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::management_token::TokenId;
use domain::plan_name::PlanName;
use domain::quota::Quota;
use domain::session::TokenDigest;
use state::redis::{
    Clock, Durability, Login, OnUnavailable, RecordNames, Revocation, Scripts, Servers, Settings, key_fields,
    org_fields, user_fields,
};
use state::{DecideRequest, LimitPlan, LimitPlans, RouteAccess};

use crate::database::Write;
use crate::scenes::Scene;
use crate::server::Server;

/// Lease of the gateways.
pub const LEASE: u64 = 10_000_000;
/// The identity of the state.
const IDENTITY: &[u8; 32] = b"0123456789abcdef0123456789abcdef";
const DISABLED: Disabled = Disabled { at: Micros(1), by: DisabledBy::Leak };

/// The records, their names, and what withdraws them.
pub struct Directory {
    pub names: RecordNames,
    pub org: OrgId,
    pub tag: OrgTag,
    pub key: KeyId,
    pub digest: KeyDigest,
    user: UserId,
    session: TokenDigest,
    token: TokenId,
    pub quota: Quota,
    pub org_record: Vec<u8>,
    pub key_record: Vec<u8>,
    pub user_record: Vec<u8>,
    pub session_record: Vec<u8>,
    pub tokens_record: Vec<u8>,
    pub reported: Vec<u8>,
    pub log: Vec<u8>,
    pub tags: Vec<u8>,
    pub missed: Vec<u8>,
    pub settings: Arc<Settings>,
    pub scripts: Arc<Scripts>,
}

/// Change by a person that withdraws or narrows something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Withdrawal {
    /// The key is revoked.
    Key,
    /// The key is disabled.
    Disabling,
    /// The user of the key is removed.
    User,
    /// The session is ended.
    Session,
    /// The management token is revoked.
    Token,
    /// The organization gets one slot.
    Narrowing,
}

/// Credential that a client presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Credential {
    Key,
    Session,
    Token,
}

impl Withdrawal {
    /// The credential that is refused from then on.
    pub fn credential(self) -> Option<Credential> {
        match self {
            Self::Key | Self::Disabling | Self::User => Some(Credential::Key),
            Self::Session => Some(Credential::Session),
            Self::Token => Some(Credential::Token),
            Self::Narrowing => None,
        }
    }
}

impl Directory {
    pub fn new(scene: &Scene) -> Self {
        let names = RecordNames::new("keygate");
        let tag: OrgTag = "0AB".parse().unwrap();
        let key: KeyId = "0AB00000a".parse().unwrap();
        let org = OrgId::from(7_u128.to_le_bytes());
        let user = UserId::from(8_u128.to_le_bytes());
        let prefix = names.org(tag);
        let user_record = format!("{}user:{user}", prefix.strip_suffix("org").unwrap()).into_bytes();
        let session = TokenDigest::of(b"session");
        let token: TokenId = "00000token".parse().unwrap();
        let quota =
            Quota { requests: 1, per: Duration::from_micros(scene.token_every), burst: scene.tokens, strict: false };
        let budget = scene.budget.map(|units| Budget { units, per: Period::Day, of: Spender::Key });
        let plan = LimitPlan { quota, concurrent: None, budget };
        let plans = LimitPlans::new([(plan_name(), plan)].into_iter().collect(), None);
        let settings = Settings {
            servers: Servers::Cluster(Vec::new()),
            login: Login::default(),
            sentinel_login: Login::default(),
            database: 0,
            tls: None,
            prefix: "keygate".to_owned(),
            quota,
            concurrent: scene.slots,
            plans,
            deadline: Duration::from_millis(50),
            lease: Duration::from_micros(LEASE),
            max_loss: Duration::from_secs(10),
            on_unavailable: if scene.is_offline {
                OnUnavailable::KnownKeys { max_staleness: Duration::from_secs(60) }
            } else {
                OnUnavailable::Deny
            },
            durability: Durability { replicas: 0, timeout: Duration::from_secs(1) },
            clock: Clock::Server,
        };
        Self {
            org,
            tag,
            key,
            digest: KeyDigest::of(b"key"),
            user,
            session,
            token,
            quota,
            org_record: prefix.into_bytes(),
            key_record: names.key(key).into_bytes(),
            user_record,
            session_record: names.session(&session).into_bytes(),
            tokens_record: names.management_tokens().into_bytes(),
            reported: names.reported_uses(tag).into_bytes(),
            log: names.revocations().into_bytes(),
            tags: names.tags().into_bytes(),
            missed: names.missed_state().into_bytes(),
            names,
            settings: Arc::new(settings),
            scripts: Arc::new(Scripts::new()),
        }
    }

    /// The records, as the directory of the product writes them.
    pub fn seed(&self, server: &mut Server, scene: &Scene) {
        let never = 9_007_199_254_740_991.0_f64;
        let now = server.time(0) as f64;
        let version = &1_u64.to_le_bytes()[..];
        let live =
            |numbers: &[f64]| [version, &numbers.iter().flat_map(|one| one.to_le_bytes()).collect::<Vec<_>>()].concat();
        let mut org = state::Org::new(self.org, self.tag, "acme".to_owned(), Micros(1));
        org.concurrent = Some(scene.slots);
        server.seed(&self.org_record, b"live", &live(&[0.0, never, now]));
        server.seed_fields(&self.org_record, org_fields(&org));
        let mut key = state::Key::new(self.key, self.org, self.user, "key", Micros(1));
        key.plan = Some(plan_name());
        key.policy = scene.key_slots.map(|_| Box::new(KeyPolicy { concurrent: scene.key_slots, ..Default::default() }));
        let (full, per) = (state::bucket::capacity(self.quota) as f64, self.quota.per_micros() as f64);
        server.seed(&self.key_record, b"live", &live(&[full, now, per, 0.0, 0.0]));
        let metered = [f64::from(self.quota.inflow()), per, full].map(f64::to_le_bytes);
        server.seed(&self.key_record, b"metered", metered.as_flattened());
        server.seed_fields(&self.key_record, key_fields(&key, &self.digest));
        server.seed_fields(&self.user_record, user_fields(&state::User::new(self.user, self.org, "u@a.b", Micros(1))));
        server.seed(&self.user_record, b"version", version);
        server.seed(&self.session_record, b"id", b"session");
        server.seed(&self.tokens_record, self.token.as_str().as_bytes(), br#"{"id":"token"}"#);
        for (field, value) in [(&b"identity"[..], &IDENTITY[..]), (b"changes", b"1"), (b"orgs", b"1")] {
            server.seed(&self.log, field, value);
        }
        for field in [&b"begun"[..], b"whole_from"] {
            server.seed(self.names.registry().as_bytes(), field, b"0");
        }
        server.seed(&self.tags, self.org.to_string().as_bytes(), self.tag.as_str().as_bytes());
    }

    pub fn request(&self, now: Micros, cost: Cost) -> DecideRequest<'_> {
        let access = RouteAccess::Everyone;
        DecideRequest { digest: &self.digest, id: Some(self.key), access, cost, client: None, now }
    }

    /// The field of a record by which a credential is found, other than a key.
    pub fn place_of(&self, credential: Credential) -> (&[u8], &[u8]) {
        match credential {
            Credential::Session => (&self.session_record, b"id"),
            _ => (&self.tokens_record, self.token.as_str().as_bytes()),
        }
    }

    /// Judges a session or token that was read, as `Sessions::read` and `ManagementTokens::read` do.
    pub fn is_live(&self, credential: Credential, found: Option<&[u8]>, kept: &state::redis::KeptRevocations) -> bool {
        let is_kept = match credential {
            Credential::Session => kept.has_session(&self.session),
            _ => kept.token_revoked(self.token).is_some(),
        };
        found.is_some_and(|found| !found.starts_with(br#"{"revoked""#)) && !is_kept
    }

    /// The writes of a change to its records.
    pub fn writes(&self, withdrawal: Withdrawal, server: &mut Server) -> Vec<Write> {
        let version = server.next_version();
        let live = |record: &[u8]| {
            let live = server.field(record, b"live").cloned().unwrap_or_default();
            Write::set(record, b"live", &[&version[..], &live[8..]].concat())
        };
        match withdrawal {
            Withdrawal::Key => vec![Write::set(&self.key_record, b"revoked", b"1"), live(&self.key_record)],
            Withdrawal::Disabling => {
                let policy = KeyPolicy { disabled: Some(DISABLED), ..KeyPolicy::default() }.to_json();
                vec![
                    Write::set(&self.key_record, b"disablings", b"1"),
                    Write::set(&self.key_record, b"policy", policy.as_bytes()),
                    live(&self.key_record),
                ]
            }
            Withdrawal::User => vec![
                Write::set(&self.user_record, b"removed", b"1"),
                Write::set(&self.user_record, b"version", &version),
            ],
            Withdrawal::Session => vec![Write::Delete { record: self.session_record.as_slice().into() }],
            Withdrawal::Token => {
                let revoked = br#"{"revoked":"x","id":"token"}"#;
                vec![Write::set(&self.tokens_record, self.token.as_str().as_bytes(), revoked)]
            }
            Withdrawal::Narrowing => {
                vec![Write::set(&self.org_record, b"concurrent", b"1"), live(&self.org_record)]
            }
        }
    }

    /// The withdrawal as a gateway keeps it; none that a failover may undo.
    pub fn revocation(&self, withdrawal: Withdrawal) -> Option<Revocation> {
        Some(match withdrawal {
            Withdrawal::Key => Revocation::Key { key: self.key, at: Micros(1) },
            Withdrawal::Disabling => Revocation::Disabled { key: self.key, number: 1, disabled: DISABLED },
            Withdrawal::User => Revocation::User { tag: self.tag, user: self.user, email: None, at: Micros(1) },
            Withdrawal::Session => Revocation::Session(self.session),
            Withdrawal::Token => Revocation::Token { token: self.token, at: Micros(1) },
            Withdrawal::Narrowing => return None,
        })
    }

    /// The entry of the log of revocations.
    pub fn log_entry(&self, withdrawal: Withdrawal) -> String {
        let (key, user) = (self.key.as_str(), self.user);
        match withdrawal {
            Withdrawal::Key => format!("key {key}"),
            Withdrawal::Disabling => format!("policy {key} 1 {} 1 {} leak", u64::MAX, DISABLED.at.0),
            Withdrawal::User => format!("user {user} {}", self.tag.as_str()),
            Withdrawal::Session => {
                let hex: String = self.session.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
                format!("session {} {hex}", uuid::Uuid::from_u128(9))
            }
            Withdrawal::Token => format!("token {} 1", self.token.as_str()),
            Withdrawal::Narrowing => format!("org {} resumed", self.org),
        }
    }
}

fn plan_name() -> PlanName {
    "plan".parse().unwrap()
}
