//! The proxies under test, each a process of its own with a configuration for the same job: bearer key, SHA-256, look-up
//! among all keys, a rate per key, a concurrency per organization, identity headers, one log line or record per request.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::ports::free_address;
use keygate::clock::{self, Micros};
use keygate::identity::{OrgId, UserId};
use keygate::key::{KeyId, OrgTag, PlainKey};
use keygate::quota::Quota;
use keygate::state::{Change, Embedded, Key, Org, State, User, embedded};

/// The task of all proxies.
pub(crate) struct Job {
    dir: tempfile::TempDir,
    upstream: SocketAddr,
    /// The key that the load uses.
    pub(crate) key: String,
}

/// A running proxy, ended with the benchmark.
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    /// Directory of its journal, or its log.
    pub(crate) journal: PathBuf,
    child: Child,
}

impl Job {
    /// A directory of this many keys, written as each proxy wants it.
    pub(crate) fn new(keys: usize, upstream: SocketAddr) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (map, key) = runtime.block_on(directory(&dir.path().join("state.db"), keys));
        std::fs::write(dir.path().join("haproxy.map"), map).unwrap();
        Self { dir, upstream, key }
    }
}

/// Writes the state file; returns HAProxy's map and the text of one key.
async fn directory(path: &Path, keys: usize) -> (String, String) {
    let settings = embedded::Settings { path: path.to_owned(), quota: Quota::DEFAULT, concurrent: 100 };
    let state = State::Embedded(Embedded::open(&settings).unwrap());
    let (tag, now) = (OrgTag::generate().unwrap(), clock::now());
    let org =
        Org { id: OrgId::generate(), tag, name: "bench".into(), created: now, suspended: false, concurrent: None };
    let user = user(org.id, now);
    let (org_id, user_id) = (org.id, user.id);
    state.change(Change::CreateOrg(org)).await.unwrap();
    state.change(Change::CreateUser(user)).await.unwrap();
    let (mut map, mut text) = (String::new(), String::new());
    for number in 0..keys {
        let plain = PlainKey::generate(KeyId::generate(tag).unwrap()).unwrap();
        let digest = plain.digest();
        let hex: String = digest.as_bytes().iter().map(|byte| format!("{byte:02X}")).collect();
        map += &format!("{hex} u{number}:o1\n");
        text = plain.expose().expose().to_owned();
        state.change(Change::CreateKey { key: key(plain.id(), org_id, user_id, now), digest }).await.unwrap();
    }
    state.close().await;
    (map, text)
}

fn user(org: OrgId, created: Micros) -> User {
    let permissions = vec!["queries:read".parse().unwrap()];
    User { id: UserId::generate(), org, email: "bench@example.com".into(), permissions, created, removed: None }
}

fn key(id: KeyId, org: OrgId, user: UserId, created: Micros) -> Key {
    Key {
        id,
        org,
        user,
        name: "bench".into(),
        imported: false,
        session_quota_key: false,
        created,
        rotated: None,
        previous_until: None,
        revoked: None,
        quota: None,
        last_used: None,
        uses: 0,
    }
}

impl Proxy {
    /// The gateway, with one worker, on a new copy of the directory. It is run by the command `wrapper`, if that is not
    /// empty.
    pub(crate) fn keygate(job: &Job, name: &'static str, durability: &str, wrapper: &[String]) -> Self {
        let dir = tempfile::tempdir_in(&job.dir).unwrap().keep();
        std::fs::copy(job.dir.path().join("state.db"), dir.join("state.db")).unwrap();
        let (address, admin, upstream) = (free_address(), free_address(), job.upstream);
        let text = format!(
            "listen: [{{ address: '{address}' }}]\nworkers: 1\n\
             admin: {{ socket: admin.sock, address: '{admin}' }}\n\
             upstream: {{ endpoints: ['http://{upstream}'] }}\n\
             state: {{ embedded: {{ path: state.db }} }}\n\
             limits: {{ key: {{ requests: 1000000, per: 1s, burst: 1000000 }} }}\n\
             audit: {{ path: audit, durability: {durability} }}\n\
             routes: [{{ name: queries.list, methods: [GET], path: /api/queries, permission: 'queries:read' }}]\n"
        );
        std::fs::write(dir.join("keygate.yaml"), text).unwrap();
        // Another build, to compare it with this one by the same load.
        let binary = std::env::var("KEYGATE_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_keygate").to_owned());
        let mut command = wrapped(wrapper, &binary);
        command.args(["serve", "--config"]).arg(dir.join("keygate.yaml")).stderr(Stdio::null());
        Self::start(name, address, dir.join("audit"), command)
    }

    /// HAProxy with one thread; none when it is not installed. It is run by the command `wrapper`, if that is not empty.
    pub(crate) fn haproxy(job: &Job, wrapper: &[String]) -> Option<Self> {
        is_haproxy_installed().then_some(())?;
        let address = free_address();
        let text = include_str!("haproxy.cfg")
            .replace("@DIR@", job.dir.path().to_str().unwrap())
            .replace("@ADDRESS@", &address.to_string())
            .replace("@UPSTREAM@", &job.upstream.to_string());
        let config = job.dir.path().join("haproxy.cfg");
        std::fs::write(&config, text).unwrap();
        let path = job.dir.path().join("haproxy.log");
        let log = std::fs::File::create(&path).unwrap();
        let mut command = wrapped(wrapper, "haproxy");
        command.arg("-db").arg("-f").arg(config).stdout(log).stderr(Stdio::null());
        Some(Self::start("HAProxy", address, path, command))
    }

    fn start(name: &'static str, address: SocketAddr, journal: PathBuf, mut command: Command) -> Self {
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let proxy = Self { name, address, journal, child };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "{name} does not start");
            // Under valgrind a start takes seconds: attempts without a pause would take the processor from it.
            std::thread::sleep(Duration::from_millis(20));
        }
        proxy
    }

    /// Number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// CPU seconds of all its threads so far.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let nanoseconds = |task: std::fs::DirEntry| {
            let schedstat = std::fs::read_to_string(task.path().join("schedstat")).unwrap();
            schedstat.split(' ').next().unwrap().parse::<f64>().unwrap()
        };
        tasks.map(|task| nanoseconds(task.unwrap())).sum::<f64>() / 1e9
    }
}

pub(crate) fn is_haproxy_installed() -> bool {
    Command::new("haproxy").arg("-v").stdout(Stdio::null()).status().is_ok()
}

/// Command that runs `program` by the command `wrapper`, or itself when that is empty.
fn wrapped(wrapper: &[String], program: &str) -> Command {
    let Some((first, rest)) = wrapper.split_first() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(rest).arg(program);
    command
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
