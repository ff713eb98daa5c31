//! A gateway in the process of the test, with its own directory and ports.

use std::fmt::{Debug, Display};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use control::management::{
    self, Actor, KeyQuery, Management, ManagementError, NewKey, NewKeyRequest, NewToken, Org, PolicyUpdate, Rotation,
    SecretSource, TokenSettings, UnixUser, User,
};
use domain::clock::{self, Micros};
use domain::identity::{OrgId, Permission, SessionId, UserId};
use domain::key::KeyId;
use domain::management_token::TokenScope;
use domain::page::{PageLimit, PageQuery};
use journal::audit::{Filter, Reader};
use journal::audit::{Outcome, Record, RecordKind};
use keygate::app::App;
use keygate::config::Config;
use tempfile::TempDir;
use url::Url;

use super::updates::{bound, permission, policy_change, suspension};
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

/// Management of a gateway, from any thread.
#[derive(Clone)]
pub struct Operator(Arc<Management>);

impl Key {
    /// A key that was created or rotated here, with a secret that was generated.
    fn of(new: NewKey) -> Self {
        let NewKey { api_key, key, .. } = new;
        Self { text: api_key.unwrap().expose().to_owned(), id: key.id, org: key.org, user: key.user }
    }
}

impl Operator {
    /// Calls a function of management, which must succeed.
    pub fn perform<T>(&self, work: impl AsyncFnOnce(&Management, Micros) -> Result<T, ManagementError>) -> T {
        self.try_perform(work).unwrap()
    }

    /// The same, which may fail.
    pub fn try_perform<T>(
        &self,
        work: impl AsyncFnOnce(&Management, Micros) -> Result<T, ManagementError>,
    ) -> Result<T, ManagementError> {
        block_on(work(&self.0, clock::now()))
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

    /// A gateway with these blocks in front of an upstream of its own, and a key.
    pub fn with_key(blocks: &str) -> (Upstream, Self, Key) {
        let upstream = Upstream::start();
        let (gateway, key) = Self::with(&[upstream.address], blocks).and_key();
        (upstream, gateway, key)
    }

    /// The same, with the text of the key alone.
    pub fn with_secret(blocks: &str) -> (Upstream, Self, String) {
        let (upstream, gateway, key) = Self::with_key(blocks);
        (upstream, gateway, key.text)
    }

    /// The gateway, and a key.
    pub fn and_key(self) -> (Self, Key) {
        let key = self.key();
        (self, key)
    }

    /// The gateway, and the text of a key.
    pub fn and_secret(self) -> (Self, String) {
        let text = self.key().text;
        (self, text)
    }

    /// Addresses of the listeners, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.app.as_ref().expect("the gateway runs").addresses
    }

    /// Management of the gateway.
    pub fn management(&self) -> &Management {
        &self.app.as_ref().expect("the gateway runs").management
    }

    /// Management of the gateway, for any thread.
    pub fn operator(&self) -> Operator {
        Operator(Arc::clone(&self.app.as_ref().expect("the gateway runs").management))
    }

    /// Calls a function of management, which must succeed.
    pub fn perform<T>(&self, work: impl AsyncFnOnce(&Management, Micros) -> Result<T, ManagementError>) -> T {
        self.perform_at(clock::now(), work)
    }

    /// The same at another time.
    pub fn perform_at<T>(
        &self,
        now: Micros,
        work: impl AsyncFnOnce(&Management, Micros) -> Result<T, ManagementError>,
    ) -> T {
        block_on(work(self.management(), now)).unwrap()
    }

    /// The same now, which may fail.
    pub fn try_perform<T>(
        &self,
        work: impl AsyncFnOnce(&Management, Micros) -> Result<T, ManagementError>,
    ) -> Result<T, ManagementError> {
        block_on(work(self.management(), clock::now()))
    }

    /// The code of the error that a function of management ends with.
    pub fn refused<T: Debug>(
        &self,
        work: impl AsyncFnOnce(&Management, Micros) -> Result<T, ManagementError>,
    ) -> &'static str {
        self.try_perform(work).unwrap_err().code()
    }

    pub fn create_org(&self, name: &str) -> Org {
        self.perform(async |to, now| management::create_org(to, OPERATOR, name, None, now).await)
    }

    /// Creates a user of an organization, which is given by its id or name.
    pub fn create_user(&self, org: impl Display, email: &str, permissions: &[&str]) -> User {
        let (org, permissions) = (org.to_string(), parse_permissions(permissions));
        self.perform(async |to, now| management::create_user(to, OPERATOR, &org, email, permissions.into(), now).await)
    }

    /// Creates a key of a user, who is given by id or email address.
    pub fn create_key(&self, org: impl Display, user: impl Display, name: &str) -> Key {
        let (org, user) = (org.to_string(), user.to_string());
        let request = NewKeyRequest { user: &user, name, policy: PolicyUpdate::default(), plan: None };
        let source = SecretSource::Generated;
        Key::of(self.perform(async |to, now| management::create_key(to, OPERATOR, &org, request, source, now).await))
    }

    /// Creates an organization, a user without permissions, and a key of this user.
    pub fn key(&self) -> Key {
        self.key_with(&[])
    }

    pub fn key_with(&self, permissions: &[&str]) -> Key {
        let org = self.create_org(&format!("org-{}", uuid::Uuid::new_v4()));
        let user = self.create_user(org.id, "user@example.com", permissions);
        self.create_key(org.id, user.id, "test")
    }

    /// Creates a management token of all organizations.
    pub fn token(&self) -> NewToken {
        let settings = TokenSettings {
            name: "pipeline".into(),
            org: None,
            allow: [TokenScope::OrgsRead].into(),
            expires: None,
            networks: Vec::new(),
            client_san: None,
        };
        self.perform(async |to, now| management::create_token(to, OPERATOR, settings, now).await)
    }

    /// Creates another key of the same user.
    pub fn another_key(&self, key: &Key) -> Key {
        self.create_key(key.org, key.user, "test")
    }

    /// The keys of an organization, a hundred at most.
    pub fn list_keys(&self, org: &str) -> Vec<management::Key> {
        let page = PageQuery::first(PageLimit::MAX);
        self.perform(async |to, now| management::list_keys(to, OPERATOR, org, &KeyQuery::default(), &page, now).await)
            .items
    }

    pub fn revoke(&self, key: &Key) {
        self.revoke_key(key.id);
    }

    pub fn revoke_key(&self, id: KeyId) {
        self.perform(async |to, now| management::revoke_key(to, OPERATOR, id, now).await);
    }

    pub fn disable(&self, key: &Key) {
        self.perform(async |to, now| management::disable_key(to, OPERATOR, key.id, false, now).await);
    }

    pub fn set_policy(&self, key: KeyId, policy: PolicyUpdate) {
        self.perform(async |to, now| management::update_key(to, OPERATOR, key, policy_change(policy), now).await);
    }

    pub fn rotate(&self, key: &Key, overlap: Option<Duration>) -> Key {
        let rotation = Rotation::new(overlap);
        Key::of(self.perform(async |to, now| management::rotate_key(to, OPERATOR, key.id, rotation, now).await))
    }

    pub fn permit(&self, key: &Key, permissions: &[&str]) {
        self.permit_user_of(key.org, key.user, permissions);
    }

    /// Suspends the key's organization.
    pub fn suspend(&self, key: &Key) {
        self.perform(async |to, now| {
            management::update_org(to, OPERATOR, &key.org.to_string(), suspension(true), now).await
        });
    }

    /// Limits the requests in flight of the key's organization.
    pub fn limit_org(&self, key: &Key, concurrent: u32) {
        let org = key.org.to_string();
        self.perform(async |to, now| management::update_org(to, OPERATOR, &org, bound(Some(concurrent)), now).await);
    }

    pub fn suspend_user(&self, key: &Key) {
        self.suspend_user_of(key.org, key.user);
    }

    pub fn resume_user(&self, key: &Key) {
        self.resume_user_of(key.org, key.user);
    }

    pub fn remove_user(&self, key: &Key) {
        self.remove_user_of(key.org, key.user);
    }

    pub fn permit_user_of(&self, org: impl Display, user: impl Display, permissions: &[&str]) -> User {
        let (org, user, permissions) = (org.to_string(), user.to_string(), parse_permissions(permissions));
        self.perform(async |to, now| {
            management::update_user(to, OPERATOR, &org, &user, permission(permissions), now).await
        })
    }

    pub fn suspend_user_of(&self, org: impl Display, user: impl Display) -> User {
        let (org, user) = (org.to_string(), user.to_string());
        self.perform(async |to, now| management::suspend_user(to, OPERATOR, &org, &user, now).await)
    }

    pub fn resume_user_of(&self, org: impl Display, user: impl Display) -> User {
        let (org, user) = (org.to_string(), user.to_string());
        self.perform(async |to, now| management::resume_user(to, OPERATOR, &org, &user, now).await)
    }

    pub fn remove_user_of(&self, org: impl Display, user: impl Display) -> User {
        let (org, user) = (org.to_string(), user.to_string());
        self.perform(async |to, now| management::remove_user(to, OPERATOR, &org, &user, now).await)
    }

    /// The address of a new sign-in link.
    pub fn create_link(&self, org: impl Display, user: impl Display) -> Url {
        let (org, user) = (org.to_string(), user.to_string());
        let link = self.perform(async |to, now| management::create_link(to, OPERATOR, &org, &user, now).await);
        link.url.expose().parse().unwrap()
    }

    pub fn end_session(&self, id: SessionId) {
        self.perform(async |to, now| management::end_session(to, OPERATOR, id, now).await);
    }

    /// Requests in flight of the key's organization.
    pub fn explain_in_flight(&self, key: &Key) -> u32 {
        self.perform(async |to, now| management::explain_key(to, OPERATOR, key.id, now).await).standing.in_flight
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
        self.try_perform(async |to, now| management::show_key(to, OPERATOR, key.id, now).await).ok().map(|key| key.uses)
    }

    /// The audit records of all requests, newest first, once all of them have ended.
    pub fn records(&self) -> Vec<Record> {
        self.ended_records(RecordKind::Request)
    }

    /// The audit records of changes with this action, newest first.
    pub fn changes(&self, action: &str) -> Vec<Record> {
        let mut changes = self.ended_records(RecordKind::Change);
        changes.retain(|record| record.action == action);
        changes
    }

    fn ended_records(&self, kind: RecordKind) -> Vec<Record> {
        let mut records = Vec::new();
        eventually("all have ended and are recorded", || {
            let reader = Reader::open(&self.dir.path().join("audit")).unwrap();
            records = reader.list(&Filter::default(), 100_000, None).unwrap().records;
            records.retain(|record| record.kind() == kind);
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

/// Permissions by their names.
pub fn parse_permissions(names: &[&str]) -> Vec<Permission> {
    names.iter().map(|name| name.parse().unwrap()).collect()
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
