//! Real PostgreSQL servers for tests and benches: each on a loopback port and in a directory of its
//! own, gone when dropped.
//!
//! - A server belongs to the test that started it, unless it asks for one that is shared ([`Postgresql::shared`]);
//!   there it has a database of its own. The empty cluster that `initdb` makes is kept below `target`, because making
//!   it takes a second of a processor.
//! - PostgreSQL refuses to run as root: as root, the tests start it as the user that Debian's package creates.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use platform::disk::volume_space;
use tempfile::TempDir;

use super::redis::Certificates;
use super::{SteppedClock, free_port, until};

/// Name of the only user, who may do anything.
const USER: &str = "keygate";
/// Version of the settings with which the kept cluster was made: part of its name.
const TEMPLATE: &str = "postgresql-1";

/// The server that tests of this process share while one of them has it.
static SHARED: Mutex<Weak<Postgresql>> = Mutex::new(Weak::new());
/// Number of databases made so far: part of their names.
static DATABASES: AtomicUsize = AtomicUsize::new(0);

/// A real server, ended when dropped.
pub struct Postgresql {
    port: u16,
    certificates: Option<Certificates>,
    child: Option<Child>,
    dir: TempDir,
    clock: Option<Arc<SteppedClock>>,
}

impl Postgresql {
    /// Starts a server with an empty database `keygate`, and waits until it answers. What it acknowledges survives the
    /// end of its processes, not that of the machine: it does not wait for the disk, and its files are in memory where
    /// there is space for them.
    pub fn start() -> Self {
        Self::with(None, directory(), None)
    }

    /// As [`start`](Self::start), with a wall clock that can be stepped.
    pub fn with_clock(clock: &Arc<SteppedClock>) -> Self {
        Self::with(None, directory(), Some(Arc::clone(clock)))
    }

    /// As [`start`](Self::start), with its files on the disk: for tests that write as much as a variable says.
    pub fn start_on_disk() -> Self {
        Self::with(None, tempfile::tempdir().unwrap(), None)
    }

    /// Starts a server that accepts encrypted connections with these certificates, and no others over TCP.
    pub fn with_tls(certificates: &Certificates) -> Self {
        Self::with(Some(certificates.clone()), directory(), None)
    }

    fn with(certificates: Option<Certificates>, dir: TempDir, clock: Option<Arc<SteppedClock>>) -> Self {
        let owner = owner();
        copy_template(dir.path(), owner);
        let mut server = Self { port: free_port(), certificates, child: None, dir, clock };
        server.configure(owner);
        server.restart();
        server
    }

    /// The server that tests of this process share, for those that neither end it nor change its settings.
    pub fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock();
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// Creates a further empty database, and returns its name.
    pub fn create_database(&self) -> String {
        let name = format!("database_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        self.sql(&format!("CREATE DATABASE {name}"));
        name
    }

    /// Lets a role connect over TCP with its password only.
    pub fn require_password(&self, role: &str) {
        let path = self.data().join("pg_hba.conf");
        let rules = fs::read_to_string(&path).unwrap();
        let strict = ["127.0.0.1/32", "::1/128"].map(|from| format!("host all {role} {from} scram-sha-256\n")).concat();
        fs::write(&path, strict + &rules).unwrap();
        let loaded = || self.sql("SELECT pg_conf_load_time()");
        let before = loaded();
        self.sql("SELECT pg_reload_conf()");
        until("the rules are loaded", || (loaded() != before).then_some(()));
    }

    /// The directory of its Unix socket, over which no password is asked for.
    pub fn socket(&self) -> &Path {
        self.dir.path()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// URL of its database.
    pub fn url(&self) -> String {
        self.url_of(USER)
    }

    /// URL of one of its databases.
    pub fn url_of(&self, database: &str) -> String {
        let mode = if self.certificates.is_some() { "require" } else { "disable" };
        // The certificate is for this name.
        format!("postgresql://{USER}@localhost:{}/{database}?sslmode={mode}", self.port)
    }

    /// Its whole log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Runs statements over its Unix socket, and returns the rows of the last one: the columns separated by `|`.
    pub fn sql(&self, statements: &str) -> Vec<String> {
        self.try_sql(statements).unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    /// As [`sql`](Self::sql), with the error of a statement or of the connection.
    pub fn try_sql(&self, statements: &str) -> Result<Vec<String>, String> {
        self.try_sql_in(USER, statements)
    }

    /// As [`sql`](Self::sql), in one of its databases.
    pub fn sql_in(&self, database: &str, statements: &str) -> Vec<String> {
        self.try_sql_in(database, statements).unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    /// As [`sql_in`](Self::sql_in), with the error of a statement or of the connection.
    pub fn try_sql_in(&self, database: &str, statements: &str) -> Result<Vec<String>, String> {
        let output = Command::new(programs().join("psql"))
            .args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set=ON_ERROR_STOP=1"])
            .arg(format!("--host={}", self.dir.path().display()))
            .args([format!("--port={}", self.port), format!("--username={USER}"), format!("--dbname={database}")])
            .arg(format!("--command={statements}"))
            .env("PGCONNECT_TIMEOUT", "5")
            .output()
            .unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
    }

    /// Ends all its processes at once, as a crash does (SIGQUIT: "immediate shutdown").
    pub fn crash(&mut self) {
        if let Some(mut child) = self.child.take() {
            signal("QUIT", child.id());
            child.wait().unwrap();
        }
    }

    /// Starts it again where it was, and waits until it answers.
    pub fn restart(&mut self) {
        self.crash();
        let log = File::options().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        let mut command = as_owner(&programs().join("postgres"));
        command.arg("-D").arg(self.data()).stdin(Stdio::null()).stderr(log.try_clone().unwrap()).stdout(log);
        if let Some(clock) = &self.clock {
            clock.apply(&mut command);
        }
        self.child = Some(command.spawn().unwrap());
        until("PostgreSQL answers", || {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
            assert!(ended.is_none(), "PostgreSQL does not start: {}", self.log());
            self.try_sql("SELECT 1").ok()
        });
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn configure(&self, owner: Option<(u32, u32)>) {
        let mut settings = format!(
            "port = {}\nlisten_addresses = 'localhost'\nunix_socket_directories = '{}'\nfsync = off\n\
             full_page_writes = off\nshared_buffers = 32MB\nmax_connections = 100\n",
            self.port,
            self.dir.path().display()
        );
        let mut hosts = "host";
        if let Some(certificates) = &self.certificates {
            let (certificate, key) = certificates.server();
            for (from, name) in [(certificate, "server.pem"), (key, "server.key")] {
                let to = self.data().join(name);
                fs::copy(from, &to).unwrap();
                fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
                give(&to, owner);
            }
            settings += "ssl = on\nssl_cert_file = 'server.pem'\nssl_key_file = 'server.key'\n";
            hosts = "hostssl";
        }
        let path = self.data().join("postgresql.auto.conf");
        fs::write(&path, settings).unwrap();
        let rules = format!("local all all trust\n{hosts} all all 127.0.0.1/32 trust\n{hosts} all all ::1/128 trust\n");
        fs::write(self.data().join("pg_hba.conf"), rules).unwrap();
    }
}

impl Drop for Postgresql {
    fn drop(&mut self) {
        self.crash();
    }
}

/// A new directory for a server: in memory if a gibibyte is free there. An empty cluster has a thousand files, and the
/// test runs start some fifty: to make and remove them on a disk took a twentieth of the processor time of all tests.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let has_space = volume_space(memory).is_ok_and(|space| space.free >= 1 << 30);
    if has_space { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// Directory of the newest installed version's programs.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let major = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newest = versions.map(|entry| entry.path()).filter(|path| path.join("bin/postgres").exists()).max_by_key(major);
    newest.expect("PostgreSQL is not installed: on Debian, `apt-get install postgresql`, or `make setup`").join("bin")
}

/// User and group that run the servers; `None` for those of the tests.
fn owner() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let user = users
        .lines()
        .find(|line| line.starts_with("postgres:"))
        .expect("root cannot run PostgreSQL, and there is no user postgres");
    let mut ids = user.split(':').skip(2).map(|id| id.parse::<u32>().unwrap());
    Some((ids.next().unwrap(), ids.next().unwrap()))
}

fn as_owner(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = owner() {
        command.uid(user).gid(group);
    }
    command.current_dir("/");
    command
}

fn give(path: &Path, owner: Option<(u32, u32)>) {
    if let Some((user, group)) = owner {
        chown(path, Some(user), Some(group)).unwrap();
    }
}

/// Copies the empty cluster to `dir`, and makes it before when no test has done so.
fn copy_template(dir: &Path, owner: Option<(u32, u32)>) {
    let template = Path::new(env!("CARGO_TARGET_TMPDIR")).join(TEMPLATE);
    give(dir, owner);
    if !template.exists() {
        make_template(dir, &template);
    }
    run(Command::new("cp").arg("--archive").arg("--reflink=auto").arg(&template).arg(dir.join("data")));
}

/// Makes it in a directory of this test, then moves a copy to its place: of several tests one wins.
fn make_template(dir: &Path, template: &Path) {
    let data = dir.join("template");
    let options = ["--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"];
    run(as_owner(&programs().join("initdb")).args(options).arg(format!("--username={USER}")).arg("-D").arg(&data));
    let create = format!("CREATE DATABASE {USER};\n");
    let mut single = as_owner(&programs().join("postgres"));
    single.args(["--single", "-D"]).arg(&data).arg("postgres").stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = single.spawn().unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), create.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let copy = tempfile::Builder::new().prefix(TEMPLATE).tempdir_in(template.parent().unwrap()).unwrap();
    run(Command::new("cp").arg("--archive").arg(&data).arg(copy.path().join("data")));
    // Fails when another test was faster: its copy is as good.
    drop(fs::rename(copy.path().join("data"), template));
    fs::remove_dir_all(data).unwrap();
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn signal(name: &str, process: u32) {
    run(Command::new("kill").args([&format!("-{name}"), &process.to_string()]));
}
