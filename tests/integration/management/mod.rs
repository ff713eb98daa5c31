//! Management: the effect of each operation, its audit record, and the admin socket and listener in front of it.

mod operations;
mod services;
mod recording;
mod left_changes;
mod offline_keys;
mod socket;
mod listener;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use control::management;
use control::management::{
    Actor, ClientInfo, Conditions, Management, NewKey, NewKeyRequest, PolicyUpdate, SecretSource, SignedInUser,
    UnixUser,
};
use domain::clock::{self, Micros};
use domain::identity::{PersonId, SessionId};
use domain::key::KeyDigest;
use domain::quota::Quota;
use domain::refusal::Refusal;
use journal::audit::Journal;
use platform::metrics::Metrics;
use state::embedded::{Embedded, Settings};
use state::{Decision, Membership, Session, State};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::journal::support::settings as journal_settings;
use crate::support::decide::decide_request;

const OPERATOR: &Actor = &Actor::operator(UnixUser::ROOT);
/// The organization of the tests, by name.
const ORG: &str = "acme";
/// Its user, by address.
const ADA: &str = "ada@example.com";

/// A key of Ada.
fn laptop() -> NewKeyRequest<'static> {
    NewKeyRequest { user: ADA, name: "laptop", policy: PolicyUpdate::default(), plan: None }
}

/// Management over a state and a journal in a directory of their own.
struct Fixture {
    directory: tempfile::TempDir,
    state: Arc<State>,
    journal: Journal,
    management: Arc<Management>,
}

impl Fixture {
    fn new() -> Self {
        Self::on(|directory| {
            let settings = Settings {
                path: directory.join("state.db"),
                quota: Quota::DEFAULT,
                concurrent: 100,
                plans: state::LimitPlans::NONE,
            };
            State::Embedded(Embedded::open(&settings).unwrap())
        })
    }

    /// A fixture on a state that is opened in its directory.
    fn on(open: impl FnOnce(&Path) -> State) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let metrics = Metrics::new();
        let state = Arc::new(open(directory.path()));
        let settings = journal_settings(directory.path());
        let journal = Journal::open(settings.clone(), metrics.audit.clone()).unwrap();
        let management = Management::new(Arc::clone(&state), journal.clone(), &settings, &metrics.state);
        Self { directory, state, journal, management: Arc::new(management) }
    }

    /// A fixture with the organization and Ada, who may read queries.
    async fn with_ada() -> Self {
        Self::new().with_org().await
    }

    /// The same fixture, with the organization and Ada.
    async fn with_org(self) -> Self {
        let management = &self.management;
        management::create_org(management, OPERATOR, ORG, None, clock::now()).await.unwrap();
        let permissions = vec!["queries:read".parse().unwrap()];
        management::create_user(management, OPERATOR, ORG, "Ada@Example.com", permissions.into(), clock::now())
            .await
            .unwrap();
        self
    }

    /// Creates a key for Ada.
    async fn new_key(&self) -> NewKey {
        management::create_key(&self.management, OPERATOR, ORG, laptop(), SecretSource::Generated, clock::now())
            .await
            .unwrap()
    }

    /// Ada, signed in.
    async fn ada(&self) -> Actor {
        let org = self.state.org_by_name(ORG).await.unwrap().unwrap();
        let user = self.state.user_by_email(org.id, ADA).await.unwrap().unwrap();
        let now = clock::now();
        let session = Session {
            id: SessionId::generate(),
            person: PersonId::from_user(user.id),
            email: ADA.into(),
            provider: None,
            memberships: vec![Membership { org: org.id, user: user.id }],
            chosen: org.id,
            created: now,
            seen: now,
            expires: now,
            idle: Duration::ZERO,
            id_token: None,
            ip: None,
            user_agent: None,
        };
        let client = ClientInfo::default();
        Actor::User(Box::new(SignedInUser { session, user, org, client, conditions: Conditions::NONE }))
    }

    /// The refusal of a request with this key at this time; none when it is admitted.
    async fn refusal(&self, presented: &str, now: Micros) -> Option<Refusal> {
        let digest = KeyDigest::of(presented.as_bytes());
        let request = decide_request(&digest, now);
        match self.state.decide(request).await.unwrap() {
            Decision::Admitted(_) => None,
            Decision::Denied { refusal, .. } => Some(refusal),
        }
    }
}

/// Sends a request and reads the whole response: its head in lower case, and its body.
async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin, request: &str, body: &str) -> (String, String) {
    exchange_with(stream, request, "", body).await
}

/// The same with further fields in the head, each with its end of line.
async fn exchange_with(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
    fields: &str,
    body: &str,
) -> (String, String) {
    let length = body.len();
    let fields = format!("{fields}host: x\r\nconnection: close\r\ncontent-length: {length}");
    let text = format!("{request} HTTP/1.1\r\n{fields}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}
