//! The job: a directory of keys as each proxy wants it, a certificate, and the upstream.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use domain::clock::{self, Micros};
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId, OrgTag, PlainKey};
use domain::quota::{MAX_TOKENS, Quota};
use state::redis::{Address, Clock, Durability, Login, OnUnavailable, Servers, Settings};
use state::{Change, Embedded, Key, Org, Redis, State, User, embedded};

use crate::load::Trust;

/// A limit that no benchmark reaches, in requests an hour.
pub(crate) const NO_LIMIT: u32 = MAX_TOKENS;
/// A concurrency that no benchmark reaches.
pub(crate) const CONCURRENT: u32 = 1000;

/// Keys that loads use.
const USED: usize = 64;

/// The task of all proxies.
pub(crate) struct Job {
    /// Has the directory as `state.db`, `haproxy.map` and `keys.txt`, and `certificate.pem` and `certificate.key`.
    pub(crate) dir: tempfile::TempDir,
    pub(crate) upstream: SocketAddr,
    /// Some of the keys, in the clear.
    pub(crate) keys: Vec<String>,
    pub(crate) trust: Trust,
    records: Records,
}

impl Job {
    /// A directory of this many keys of one organization.
    pub(crate) fn new(keys: usize, upstream: SocketAddr) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::generate(keys);
        let (mut map, mut lines) = (String::new(), String::new());
        for (number, (_, digest)) in records.keys.iter().enumerate() {
            let hex: String = digest.as_bytes().iter().map(|byte| format!("{byte:02X}")).collect();
            map += &format!("{hex} u{number}:o1\n");
            lines += &format!("{hex} u{number} o1\n");
        }
        let settings = embedded::Settings {
            path: dir.path().join("state.db"),
            quota: Quota::DEFAULT,
            concurrent: 100,
            plans: state::LimitPlans::NONE,
        };
        runtime().block_on(records.write(&State::Embedded(Embedded::open(&settings).unwrap())));
        fs::write(dir.path().join("haproxy.map"), map).unwrap();
        fs::write(dir.path().join("keys.txt"), lines).unwrap();
        fs::write(dir.path().join("bucket.lua"), include_str!("bucket.lua")).unwrap();
        let trust = certificate(dir.path());
        Self { dir, upstream, keys: records.texts.clone(), trust, records }
    }

    /// Writes the directory into a Redis.
    pub(crate) fn write_to_redis(&self, port: u16) {
        let settings = Settings {
            servers: Servers::Single(Address { host: "127.0.0.1".into(), port }),
            login: Login::default(),
            sentinel_login: Login::default(),
            database: 0,
            tls: None,
            prefix: "keygate".into(),
            quota: Quota::DEFAULT,
            concurrent: CONCURRENT,
            plans: state::LimitPlans::NONE,
            deadline: Duration::from_secs(2),
            lease: Duration::from_secs(10),
            max_loss: Duration::from_secs(10),
            on_unavailable: OnUnavailable::Deny,
            durability: Durability { replicas: 0, timeout: Duration::from_secs(1) },
            clock: Clock::Server,
        };
        runtime().block_on(async {
            let state = State::Redis(Redis::open(settings).await.unwrap());
            self.records.write(&state).await;
        });
    }
}

/// Keys of one user, as the gateway keeps them.
struct Records {
    org: Org,
    user: User,
    keys: Vec<(Key, KeyDigest)>,
    /// The last keys in the clear.
    texts: Vec<String>,
}

impl Records {
    fn generate(keys: usize) -> Self {
        let (tag, created) = (OrgTag::generate().unwrap(), clock::now());
        let org = Org::new(OrgId::generate(), tag, "bench", created);
        let permissions = ["queries:read", "queries:write"].map(|name| name.parse().unwrap()).to_vec();
        let user = User { permissions, ..User::new(UserId::generate(), org.id, "bench@example.com", created) };
        let plain: Vec<PlainKey> =
            (0..keys).map(|_| PlainKey::generate(KeyId::generate(tag).unwrap()).unwrap()).collect();
        let texts = plain.iter().rev().take(USED).map(|plain| plain.expose().expose().to_owned()).collect();
        let keys = plain.iter().map(|plain| (key(plain.id(), &user, created), plain.digest())).collect();
        Self { org, user, keys, texts }
    }

    async fn write(&self, state: &State) {
        state.change(Change::CreateOrg(self.org.clone())).await.unwrap();
        state.change(Change::CreateUser(self.user.clone())).await.unwrap();
        for (key, digest) in &self.keys {
            state.change(Change::CreateKey { key: key.clone(), digest: *digest }).await.unwrap();
        }
        state.close().await;
    }
}

fn key(id: KeyId, user: &User, created: Micros) -> Key {
    Key::new(id, user.org, user.id, "bench", created)
}

/// Writes a certificate for `localhost` and its key, as two files and as HAProxy's one.
fn certificate(dir: &Path) -> Trust {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (chain, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    fs::write(dir.join("certificate.pem"), &chain).unwrap();
    fs::write(dir.join("certificate.key"), &key).unwrap();
    fs::write(dir.join("haproxy.pem"), chain + &key).unwrap();
    Trust(certified.cert.der().clone())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
