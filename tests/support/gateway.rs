//! A gateway in the process of the test, with its own directory and ports.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use control::admin::{self, Operation, Reply};
use control::management::{Actor, Management, ManagementError, NewKey, UnixUser};
use domain::clock::{self, Micros};
use domain::identity::{OrgId, UserId};
use domain::key::KeyId;
use journal::audit::{Filter, Reader};
use journal::audit::{Outcome, Record, RecordKind};
use keygate::app::App;
use keygate::config::Config;
use tempfile::TempDir;

use super::{Client, Upstream, eventually, until};

/// The operator of the gateways of tests.
pub const OPERATOR: &Actor = &Actor::operator(UnixUser::ROOT);

pub struct Gateway {
    pub address: SocketAddr,
    pub admin: SocketAddr,
    pub dir: TempDir,
    app: Option<App>,
}

/// A key with its secret, as its owner holds it.
pub struct Key {
    pub text: String,
    pub id: KeyId,
    pub org: OrgId,
    pub user: UserId,
}

/// Performs operations at a gateway, from any thread.
#[derive(Clone)]
pub struct Operator(Arc<Management>);

impl Operator {
    pub fn perform(&self, operation: Operation) -> Reply {
        self.try_perform(operation).unwrap()
    }

    /// The same, which may fail.
    pub fn try_perform(&self, operation: Operation) -> Result<Reply, ManagementError> {
        block_on(admin::perform(&self.0, OPERATOR, operation, clock::now()))
    }
}

impl Gateway {
    /// The default configuration, one upstream.
    pub fn start(upstream: &Upstream) -> Self {
        Self::with(&[upstream.address], "")
    }

    /// With further blocks of configuration; a `listen:`, `upstream:`, `upstreams:`, `state:` or `audit:` among them
    /// replaces the usual one.
    pub fn with(upstreams: &[SocketAddr], blocks: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), upstreams, blocks);
        let app = App::start(config).unwrap();
        Self { address: app.addresses[0], admin: app.admin_address, dir, app: Some(app) }
    }

    /// Addresses of the listeners, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.app.as_ref().expect("the gateway runs").addresses
    }

    /// Management of the gateway.
    pub fn management(&self) -> &Management {
        &self.app.as_ref().expect("the gateway runs").management
    }

    /// Performs operations, on any thread.
    pub fn operator(&self) -> Operator {
        Operator(Arc::clone(&self.app.as_ref().expect("the gateway runs").management))
    }

    pub fn perform(&self, operation: Operation) -> Reply {
        self.perform_at(operation, clock::now())
    }

    /// The same at another time.
    pub fn perform_at(&self, operation: Operation, now: Micros) -> Reply {
        let management = &self.app.as_ref().expect("the gateway runs").management;
        block_on(admin::perform(management, OPERATOR, operation, now)).unwrap()
    }

    /// The code of the error that an operation ends with.
    pub fn refused(&self, operation: Operation) -> &'static str {
        let management = &self.app.as_ref().expect("the gateway runs").management;
        block_on(admin::perform(management, OPERATOR, operation, clock::now())).unwrap_err().code()
    }

    /// Creates an organization, a user without permissions, and a key of this user.
    pub fn key(&self) -> Key {
        self.key_with(&[])
    }

    pub fn key_with(&self, permissions: &[&str]) -> Key {
        let name = format!("org-{}", uuid::Uuid::new_v4());
        let Reply::Org { org } = self.perform(Operation::CreateOrg { name }) else { panic!("not an org") };
        let user = Operation::CreateUser {
            org: org.id.to_string(),
            email: "user@example.com".into(),
            permissions: permissions.iter().map(|permission| permission.parse().unwrap()).collect(),
        };
        let Reply::User { user } = self.perform(user) else { panic!("not a user") };
        self.key_of(org.id, user.id)
    }

    /// Creates another key of the same user.
    pub fn another_key(&self, key: &Key) -> Key {
        self.key_of(key.org, key.user)
    }

    fn key_of(&self, org: OrgId, user: UserId) -> Key {
        let create = Operation::CreateKey {
            org: org.to_string(),
            user: user.to_string(),
            name: "test".into(),
            policy: Box::default(),
            id: None,
            sha256: None,
        };
        let Reply::NewKey(NewKey { api_key, key, .. }) = self.perform(create) else { panic!("not a key") };
        Key { text: api_key.unwrap().expose().to_owned(), id: key.id, org, user }
    }

    pub fn revoke(&self, key: &Key) {
        self.perform(Operation::RevokeKey { key: key.id });
    }

    pub fn rotate(&self, key: &Key, overlap: Option<Duration>) -> Key {
        let Reply::NewKey(NewKey { api_key, key: shown, .. }) =
            self.perform(Operation::RotateKey { key: key.id, overlap, sha256: None })
        else {
            panic!("not a key")
        };
        Key { text: api_key.unwrap().expose().to_owned(), id: shown.id, org: key.org, user: key.user }
    }

    pub fn permit(&self, key: &Key, permissions: &[&str]) {
        let permissions = permissions.iter().map(|permission| permission.parse().unwrap()).collect();
        let (org, user) = (key.org.to_string(), key.user.to_string());
        self.perform(Operation::PermitUser { org, user, permissions });
    }

    pub fn suspend(&self, key: &Key) {
        self.perform(Operation::SuspendOrg { org: key.org.to_string() });
    }

    pub fn suspend_user(&self, key: &Key) {
        self.perform(Operation::SuspendUser { org: key.org.to_string(), user: key.user.to_string() });
    }

    pub fn resume_user(&self, key: &Key) {
        self.perform(Operation::ResumeUser { org: key.org.to_string(), user: key.user.to_string() });
    }

    pub fn remove_user(&self, key: &Key) {
        self.perform(Operation::RemoveUser { org: key.org.to_string(), user: key.user.to_string() });
    }

    /// Requests in flight of the key's organization.
    pub fn explain_in_flight(&self, key: &Key) -> u32 {
        let Reply::Explanation { explanation } = self.perform(Operation::Explain { key: key.id }) else {
            panic!("not an explanation")
        };
        explanation.standing.in_flight
    }

    /// Changes the configuration file and reloads it.
    pub fn reconfigure(&self, change: impl FnOnce(&str) -> String) {
        let file = self.dir.path().join("keygate.yaml");
        let text = change(&std::fs::read_to_string(&file).unwrap());
        std::fs::write(&file, text).unwrap();
        self.app.as_ref().expect("the gateway runs").reload();
    }

    /// Reloads changed certificate files, as the gateway does every second.
    pub fn reload_certificates(&self) {
        self.app.as_ref().expect("the gateway runs").certificates.reload();
    }

    /// Number of uses of a key, as management shows it; none when the state is unavailable.
    pub fn uses(&self, key: &Key) -> Option<u64> {
        let management = &self.app.as_ref().expect("the gateway runs").management;
        match block_on(admin::perform(management, OPERATOR, Operation::ShowKey { key: key.id }, clock::now())) {
            Ok(Reply::Key { key }) => Some(key.uses),
            _ => None,
        }
    }

    /// The audit records of all requests, newest first, once all of them have ended.
    pub fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        eventually("all requests have ended and are recorded", || {
            let reader = Reader::open(&self.dir.path().join("audit")).unwrap();
            records = reader.list(&Filter::default(), 100_000, None).unwrap().records;
            records.retain(|record| record.kind() == RecordKind::Request);
            !records.iter().any(|record| record.outcome == Outcome::InProgress)
        });
        records
    }

    /// A metric by its name, labels included.
    pub fn metric(&self, name: &str) -> f64 {
        metric(self.admin, name)
    }

    /// A metric that is there only once its subject is.
    pub fn metric_if_there(&self, name: &str) -> Option<f64> {
        find_metric(&scrape(self.admin), name)
    }

    /// Stops the gateway as SIGTERM does, and starts it again with the same directory.
    pub fn restart(&mut self, upstream: &Upstream) {
        self.app.take().expect("the gateway runs").stop();
        let app = App::start(config(self.dir.path(), &[upstream.address], "")).unwrap();
        (self.address, self.admin) = (app.addresses[0], app.admin_address);
        self.app = Some(app);
    }

    /// The same, with this change of its configuration.
    pub fn restart_with(&mut self, change: impl FnOnce(&str) -> String) {
        self.app.take().expect("the gateway runs").stop();
        let path = self.dir.path().join("keygate.yaml");
        let text = change(&std::fs::read_to_string(&path).unwrap());
        let app = App::start(parsed(&path, &text)).unwrap();
        (self.address, self.admin) = (app.addresses[0], app.admin_address);
        self.app = Some(app);
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(app) = self.app.take() {
            app.stop();
        }
    }
}

/// A metric of the gateway with this admin listener. Some are there only when what they count has happened once,
/// perhaps in the background: waits until it is there.
#[track_caller]
pub fn metric(admin: SocketAddr, name: &str) -> f64 {
    until(&format!("the metric {name} is there"), || find_metric(&scrape(admin), name))
}

fn scrape(admin: SocketAddr) -> String {
    String::from_utf8(Client::connect(admin).get("/metrics", "").body).unwrap()
}

fn find_metric(text: &str, name: &str) -> Option<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name).filter(|rest| rest.starts_with(' ')));
    value.map(|value| value.trim().parse().unwrap())
}

fn config(dir: &Path, upstreams: &[SocketAddr], blocks: &str) -> Config {
    let endpoints: Vec<String> = upstreams.iter().map(|address| format!("\"http://{address}\"")).collect();
    let mut text = "admin: { socket: admin.sock, address: 127.0.0.1:0 }\n".to_owned();
    for (name, usual) in [
        ("listen", "[{ address: 127.0.0.1:0, http2: prior_knowledge }]"),
        ("upstream", &format!("{{ endpoints: [{}] }}", endpoints.join(", "))),
        ("state", "{ embedded: { path: state.db } }"),
        // The volume of the machine may be nearly full, where refusals become counts.
        ("audit", "{ low_water: 0%, path: audit }"),
        // In the file as well, which a reload reads. A test on a busy machine may be a slow client.
        ("timeouts", "{ lame_duck: 0s, handshake: 60s, first_byte: 60s, head: 60s }"),
    ] {
        let is_given = |name: &str| format!("\n{blocks}").contains(&format!("\n{name}:"));
        if !is_given(name) && !is_given(&format!("{name}s")) {
            text.push_str(&format!("{name}: {usual}\n"));
        }
    }
    text.push_str(blocks);
    parsed(&dir.join("keygate.yaml"), &text)
}

fn parsed(path: &Path, text: &str) -> Config {
    std::fs::write(path, text).unwrap();
    let config = Config::parse(path, text).unwrap_or_else(|problems| panic!("{problems}"));
    // No load balancer has to notice that the gateway stops.
    Config { lame_duck: Duration::ZERO, ..config }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
