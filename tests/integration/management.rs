//! Management: what each operation does, that it is recorded, and that the socket gives the same.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keygate::admin::{self, BindError, Operation, Readiness, Reply};
use keygate::audit::{self, Durability, Filter, Journal, OnUnavailable, Outcome, Reader, Record};
use keygate::clock::{self, Micros};
use keygate::key::{self, KeyDigest, KeyId};
use keygate::management::{ErrorKind, Key, KeyStatus, LimitUpdate, Management, ManagementError};
use keygate::metrics::Metrics;
use keygate::problem::Problem;
use keygate::quota::Quota;
use keygate::refusal::Refusal;
use keygate::state::embedded::{Embedded, Settings};
use keygate::state::{DecideRequest, Decision, RouteAccess, State};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::oneshot;

/// Management over a state and a journal in a directory of their own.
struct House {
    directory: tempfile::TempDir,
    state: Arc<State>,
    journal: Journal,
    management: Arc<Management>,
}

impl House {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let metrics = Metrics::new();
        let settings = Settings { path: directory.path().join("state.db"), quota: Quota::DEFAULT, concurrent: 100 };
        let state = Arc::new(State::Embedded(Embedded::open(&settings).unwrap()));
        let journal = Journal::open(journal_settings(directory.path()), metrics.audit.clone()).unwrap();
        let management = Arc::new(Management::new(
            Arc::clone(&state),
            journal.clone(),
            &journal_settings(directory.path()),
            &metrics.state,
        ));
        Self { directory, state, journal, management }
    }

    /// A house with organization `acme`, and its user ada who may read.
    async fn with_ada() -> Self {
        let house = Self::new();
        house.perform(Operation::CreateOrg { name: "acme".into() }).await.unwrap();
        let permissions = vec!["queries:read".parse().unwrap()];
        let ada = Operation::CreateUser { org: "acme".into(), email: "Ada@Example.com".into(), permissions };
        house.perform(ada).await.unwrap();
        house
    }

    async fn perform(&self, operation: Operation) -> Result<Reply, ManagementError> {
        admin::perform(&self.management, operation, clock::now()).await
    }

    /// A new key of ada's: what was presented to her, and its record.
    async fn new_key(&self) -> (String, Key) {
        let create = Operation::CreateKey { org: "acme".into(), user: "ada@example.com".into(), name: "laptop".into() };
        new_key(self.perform(create).await.unwrap())
    }

    async fn key(&self, operation: Operation) -> Key {
        let Reply::Key { key } = self.perform(operation).await.unwrap() else { panic!("a key") };
        key
    }

    /// Why a request with this key is refused at this time, if it is.
    async fn refusal(&self, presented: &str, now: Micros) -> Option<Refusal> {
        let digest = KeyDigest::of(presented.as_bytes());
        match self
            .state
            .decide(DecideRequest { digest: &digest, id: None, access: RouteAccess::Everyone, now })
            .await
            .unwrap()
        {
            Decision::Admitted(_) => None,
            Decision::Denied { refusal, .. } => Some(refusal),
        }
    }

    /// All records, oldest first, from the closed journal.
    async fn records(&self) -> Vec<Record> {
        self.journal.close().await;
        let reader = Reader::open(&self.directory.path().join("audit")).unwrap();
        let mut records = Vec::new();
        reader
            .export(&Filter::default(), &mut |record| {
                records.push(record);
                Ok(())
            })
            .unwrap();
        records
    }
}

fn journal_settings(directory: &Path) -> audit::Settings {
    audit::Settings {
        path: directory.join("audit"),
        durability: Durability::Written,
        on_unavailable: OnUnavailable::Refuse,
        segment_size: 64 << 20,
        segment_age: Duration::from_secs(86_400),
        retention_age: None,
        retention_size: None,
        unknown_per_second: 10,
        gateway: "test".into(),
    }
}

fn new_key(reply: Reply) -> (String, Key) {
    let Reply::NewKey { api_key, key } = reply else { panic!("a new key") };
    (api_key.expose().to_owned(), key)
}

#[tokio::test]
async fn organizations_are_created_limited_and_suspended() {
    let house = House::with_ada().await;
    let (presented, _) = house.new_key().await;
    let org = |reply| match reply {
        Reply::Org { org } => org,
        other => panic!("{other:?}"),
    };
    let shown = org(house.perform(Operation::ShowOrg { org: "acme".into() }).await.unwrap());
    let by_id = org(house.perform(Operation::ShowOrg { org: shown.id.to_string() }).await.unwrap());
    assert_eq!(shown, by_id);

    let limited = Operation::LimitOrg { org: "acme".into(), concurrent: Some(1) };
    assert_eq!(org(house.perform(limited).await.unwrap()).concurrent, Some(1));
    let suspended = org(house.perform(Operation::SuspendOrg { org: "acme".into() }).await.unwrap());
    assert!(suspended.suspended);
    assert_eq!(house.refusal(&presented, clock::now()).await, Some(Refusal::OrgSuspended));
    house.perform(Operation::ResumeOrg { org: "acme".into() }).await.unwrap();
    assert_eq!(house.refusal(&presented, clock::now()).await, None);
    let Reply::Orgs { orgs } = house.perform(Operation::ListOrgs {}).await.unwrap() else { panic!("orgs") };
    assert_eq!(orgs.len(), 1);
}

#[tokio::test]
async fn users_are_permitted_and_removed() {
    let house = House::with_ada().await;
    let (presented, _) = house.new_key().await;
    let permissions = ["b", "a", "b"].map(|text| text.parse().unwrap()).to_vec();
    let permit = Operation::PermitUser { org: "acme".into(), user: "ADA@example.com".into(), permissions };
    let Reply::User { user } = house.perform(permit).await.unwrap() else { panic!("a user") };
    assert_eq!(user.email, "ada@example.com");
    assert_eq!(user.permissions.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a", "b"]);

    let remove = Operation::RemoveUser { org: "acme".into(), user: user.id.to_string() };
    house.perform(remove.clone()).await.unwrap();
    assert_eq!(house.refusal(&presented, clock::now()).await, Some(Refusal::UserRemoved));
    assert_eq!(house.perform(remove).await.unwrap_err().code(), "no_such_user", "removed for good");
    let Reply::Users { users } = house.perform(Operation::ListUsers { org: "acme".into() }).await.unwrap() else {
        panic!("users")
    };
    assert!(users[0].removed.is_some());
}

#[tokio::test]
async fn keys_are_created_rotated_and_revoked() {
    let house = House::with_ada().await;
    let (first, key) = house.new_key().await;
    assert_eq!(key::parse(first.as_bytes()), Some(key.id));
    assert_eq!((key.name.as_str(), key.email.as_str(), key.status), ("laptop", "ada@example.com", KeyStatus::Active));
    assert_eq!(house.refusal(&first, clock::now()).await, None);

    let overlap = Some(Duration::from_secs(3600));
    let (second, rotated) = new_key(house.perform(Operation::RotateKey { key: key.id, overlap }).await.unwrap());
    let later = clock::now().after(Duration::from_secs(3601));
    assert_eq!((rotated.id, rotated.uses), (key.id, 1));
    assert_eq!(house.refusal(&first, clock::now()).await, None, "the old secret, within the overlap");
    assert_eq!(house.refusal(&first, later).await, Some(Refusal::Expired));
    assert_eq!(house.refusal(&second, later).await, None);

    let (third, _) = new_key(house.perform(Operation::RotateKey { key: key.id, overlap: None }).await.unwrap());
    assert!(house.refusal(&second, clock::now()).await.is_some(), "no overlap by default");
    let revoked = house.key(Operation::RevokeKey { key: key.id }).await;
    assert_eq!(revoked.status, KeyStatus::Revoked);
    assert_eq!(house.refusal(&third, clock::now()).await, Some(Refusal::Revoked));
    let again = house.key(Operation::RevokeKey { key: key.id }).await;
    assert_eq!(again.revoked, revoked.revoked, "revoking twice is no error, and the first time stands");
    let error = house.perform(Operation::RotateKey { key: key.id, overlap: None }).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), ("key_revoked", ErrorKind::Conflict));
}

#[tokio::test]
async fn keys_are_imported_by_their_digest() {
    let house = House::with_ada().await;
    let import = |sha256: &str, name: &str| Operation::ImportKey {
        org: "acme".into(),
        user: "ada@example.com".into(),
        sha256: sha256.into(),
        name: name.into(),
    };
    let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert!(house.key(import(hex, "old")).await.imported);
    assert_eq!(house.refusal("abc", clock::now()).await, None);
    assert_eq!(house.perform(import(hex, "again")).await.unwrap_err().code(), "taken");
    assert_eq!(house.perform(import("abc", "bad")).await.unwrap_err().code(), "invalid_digest");
}

#[tokio::test]
async fn limits_of_a_key_override_the_configured_ones() {
    let house = House::with_ada().await;
    let (presented, key) = house.new_key().await;
    let limits = LimitUpdate { requests: Some(2), per: Some(Duration::from_secs(60)), burst: None };
    let limited = house.key(Operation::LimitKey { key: key.id, limits: Some(limits) }).await;
    assert_eq!((limited.limits.requests, limited.limits.per, limited.limits.burst), (2, Duration::from_secs(60), 2));
    let now = clock::now();
    assert_eq!(house.refusal(&presented, now).await, None);
    assert_eq!(house.refusal(&presented, now).await, None);
    assert_eq!(house.refusal(&presented, now).await, Some(Refusal::RateLimited));

    let Reply::Explanation { explanation } =
        admin::perform(&house.management, Operation::Explain { key: key.id }, now).await.unwrap()
    else {
        panic!("an explanation")
    };
    assert!(explanation.verdict.contains("bucket is empty; the next token comes in 30 s"), "{}", explanation.verdict);
    assert_eq!((explanation.standing.remaining, explanation.standing.burst), (0, 2));

    let faster = LimitUpdate { requests: Some(10), ..LimitUpdate::default() };
    let faster = house.key(Operation::LimitKey { key: key.id, limits: Some(faster) }).await;
    assert_eq!((faster.limits.requests, faster.limits.per, faster.limits.burst), (10, Duration::from_secs(60), 10));
    let back = house.key(Operation::LimitKey { key: key.id, limits: None }).await;
    assert_eq!((back.limits.requests, back.limits.own), (1000, false));
    let zero = LimitUpdate { requests: Some(0), ..LimitUpdate::default() };
    let error = house.perform(Operation::LimitKey { key: key.id, limits: Some(zero) }).await.unwrap_err();
    assert_eq!(error.code(), "invalid_limits");
}

#[tokio::test]
async fn every_change_is_recorded_and_nothing_else() {
    let house = House::with_ada().await;
    let (_, key) = house.new_key().await;
    house.perform(Operation::ListKeys { org: "acme".into() }).await.unwrap();
    house.perform(Operation::CreateOrg { name: "acme".into() }).await.unwrap_err();
    house.perform(Operation::RevokeKey { key: key.id }).await.unwrap();
    let records = house.records().await;
    let seen: Vec<_> = records.iter().map(|record| (record.action.as_str(), record.outcome, record.status)).collect();
    assert_eq!(
        seen,
        [
            ("org.create", Outcome::Completed, Some(200)),
            ("user.create", Outcome::Completed, Some(200)),
            ("key.create", Outcome::Completed, Some(200)),
            ("org.create", Outcome::ClientError, Some(409)),
            ("key.revoke", Outcome::Completed, Some(200)),
        ]
    );
    let revocation = &records[4];
    assert_eq!((revocation.key_id, revocation.user_id), (Some(key.id), Some(key.user)));
    assert_eq!((revocation.org_id, revocation.auth_method.as_str()), (Some(key.org), "admin-socket"));
    assert_eq!((revocation.method.as_str(), revocation.path.as_str()), ("ADMIN", "key.revoke"));
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_done() {
    let house = House::new();
    house.journal.close().await;
    let error = house.perform(Operation::CreateOrg { name: "acme".into() }).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), ("audit_unavailable", ErrorKind::Unavailable));
    assert_eq!(house.state.orgs().await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_plain_key_is_nowhere_but_in_its_reply() {
    let house = House::with_ada().await;
    let create = Operation::CreateKey { org: "acme".into(), user: "ada@example.com".into(), name: "laptop".into() };
    let reply = house.perform(create).await.unwrap();
    let shown = format!("{reply:?} {:?}", house.management);
    let (presented, _) = new_key(reply);
    let secret = &presented[18..];
    assert!(!shown.contains(secret));
    house.state.close().await;
    house.journal.close().await;
    let mut searched = 0;
    for directory in [house.directory.path().to_owned(), house.directory.path().join("audit")] {
        for file in
            std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file())
        {
            let content = std::fs::read(&file).unwrap();
            assert!(!content.windows(secret.len()).any(|window| window == secret.as_bytes()), "{}", file.display());
            searched += content.len();
        }
    }
    assert!(searched > 1000, "there was something to search");
}

#[tokio::test]
async fn wrong_operands_are_told_apart() {
    let house = House::with_ada().await;
    let key: KeyId = "zzzzzzzzz".parse().unwrap();
    let acme = || "acme".to_owned();
    let cases = [
        (Operation::CreateOrg { name: "a\nb".into() }, "invalid_name"),
        (Operation::CreateOrg { name: String::new() }, "invalid_name"),
        (Operation::ShowOrg { org: "other".into() }, "no_such_org"),
        (Operation::LimitOrg { org: acme(), concurrent: Some(0) }, "invalid_limits"),
        (Operation::CreateUser { org: acme(), email: "ada".into(), permissions: vec![] }, "invalid_email"),
        (Operation::CreateUser { org: acme(), email: "ADA@example.com".into(), permissions: vec![] }, "taken"),
        (Operation::CreateKey { org: acme(), user: "eve@example.com".into(), name: "x".into() }, "no_such_user"),
        (Operation::CreateKey { org: acme(), user: "ada@example.com".into(), name: " x".into() }, "invalid_name"),
        (Operation::ShowKey { key }, "no_such_key"),
        (Operation::Explain { key }, "no_such_key"),
        (Operation::RotateKey { key, overlap: Some(Duration::MAX) }, "invalid_overlap"),
        (Operation::Activity { org: acme(), keys: vec![key; 201] }, "invalid_limit"),
        (Operation::Activity { org: "other".into(), keys: vec![key; 200] }, "no_such_org"),
    ];
    for (operation, code) in cases {
        assert_eq!(house.perform(operation.clone()).await.unwrap_err().code(), code, "{operation:?}");
    }
}

/// Sends a request, reads the whole response: its head and its body.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str, body: &str) -> (String, String) {
    let length = body.len();
    let text = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

#[tokio::test]
async fn the_socket_performs_operations() {
    let house = House::new();
    let path = house.directory.path().join("run/admin.sock");
    let listener = admin::bind_socket(&path).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));

    let (stop, stopped) = oneshot::channel::<()>();
    let management = Arc::clone(&house.management);
    let report = admin::ConfigReport {
        path: "/etc/keygate/keygate.yaml".into(),
        sha256: "5e".repeat(32),
        applied: clock::now().to_string(),
        last_error: None,
    };
    let status = Arc::new(admin::ConfigStatus::new(report.clone()));
    let serving =
        tokio::spawn(admin::serve_socket(listener, management, Arc::clone(&status), async { drop(stopped.await) }));
    let ask =
        async |request: &str, body: &str| exchange(UnixStream::connect(&path).await.unwrap(), request, body).await;
    let (head, body) = ask("POST /v1/operations", r#"{"operation":"org.create","name":"acme"}"#).await;
    assert!(head.starts_with("http/1.1 200") && head.contains("application/json"), "{head}");
    assert!(matches!(serde_json::from_str(&body).unwrap(), Reply::Org { org } if org.name == "acme"));

    let (head, body) = ask("POST /v1/operations", r#"{"operation":"org.create","name":"acme"}"#).await;
    assert!(head.starts_with("http/1.1 409") && head.contains("application/problem+json"), "{head}");
    let problem: Problem = serde_json::from_str(&body).unwrap();
    assert_eq!((problem.status, &*problem.code, &*problem.title), (409, "taken", "Conflict"));

    for bad in ["", "{}", r#"{"operation":"org.drop"}"#, &"x".repeat(70_000)] {
        let (head, body) = ask("POST /v1/operations", bad).await;
        assert!(head.starts_with("http/1.1 400") && body.contains("invalid_operation"), "{head} {body}");
    }
    assert!(ask("GET /v1/health", "").await.0.starts_with("http/1.1 200"));
    assert_eq!(serde_json::from_str::<admin::ConfigReport>(&ask("GET /v1/config", "").await.1).unwrap(), report);
    let refusal = admin::RejectedConfig { time: report.applied.clone(), sha256: None, error: "unreadable".into() };
    status.set_rejected(refusal.clone());
    let told: admin::ConfigReport = serde_json::from_str(&ask("GET /v1/config", "").await.1).unwrap();
    assert_eq!((told.sha256, told.last_error), (report.sha256, Some(refusal)));
    assert!(ask("POST /v1/config", "").await.0.contains("allow: get"));
    assert!(ask("GET /v1/operations", "").await.0.contains("allow: post"));
    assert!(ask("GET /", "").await.0.starts_with("http/1.1 404"));

    stop.send(()).unwrap();
    serving.await.unwrap();
    assert!(UnixStream::connect(&path).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn only_a_socket_left_behind_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    let listening = admin::bind_socket(&path).unwrap();
    assert!(matches!(admin::bind_socket(&path), Err(BindError::InUse(_))));
    drop(listening);
    drop(admin::bind_socket(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "mine").unwrap();
    assert!(matches!(admin::bind_socket(&path), Err(BindError::NotASocket(_))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[tokio::test]
async fn the_listener_tells_health_and_metrics() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let works = Arc::new(AtomicBool::new(false));
    let check = Arc::clone(&works);
    let readiness = Arc::new(Readiness::new().with("state", move || check.load(Ordering::Relaxed)));
    let serving = admin::serve_http(listener, Metrics::new(), Arc::clone(&readiness), std::future::pending());
    let serving = tokio::spawn(serving);
    let ask = async |request: &str| exchange(TcpStream::connect(address).await.unwrap(), request, "").await;

    let (head, body) = ask("GET /metrics").await;
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    assert!(body.contains("keygate_build_info"));
    assert!(ask("GET /live").await.0.starts_with("http/1.1 200"));
    assert!(ask("GET /v1/operations").await.0.starts_with("http/1.1 404"));
    assert!(ask("POST /ready").await.0.starts_with("http/1.1 405"));

    let (head, body) = ask("GET /ready").await;
    assert!(head.starts_with("http/1.1 503"), "{head}");
    assert_eq!(body, r#"{"ready":false,"reasons":["state"]}"#);
    works.store(true, Ordering::Relaxed);
    assert!(ask("GET /ready").await.0.starts_with("http/1.1 200"));
    readiness.drain();
    assert_eq!(ask("GET /ready").await.1, r#"{"ready":false,"reasons":["draining"]}"#);
    serving.abort();
}
