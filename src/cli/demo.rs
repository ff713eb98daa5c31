//! `keygate demo`: gateway and query-store on one machine, with an organization, two users, their keys and 250 queries.
//!
//! Everything is as in production but for one thing: the demo keeps its keys in a file, so that it can print them again
//! when it is started again over the same directory. A gateway never does.

mod page;

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::health::local_address;
use super::serve::Signals;
use crate::app::App;
use crate::clock;
use crate::config::Config;
use crate::identity::{OrgId, UserId};
use crate::management::{Actor, ApiKey, Management, ManagementError};
use crate::query_store::service::Caller;
use crate::query_store::{self, QueryService};
use crate::telemetry;

/// Queries in the demo: enough for thirteen pages of the default size.
const QUERIES: u32 = 250;
const ORG: &str = "demo";
/// Who manages the demo's organization.
const ADMIN: &str = "admin@demo.example";
/// The demo manages its own gateway.
const OPERATOR: &Actor = &Actor::Operator;
/// Where `/metrics` is, unless the port is taken.
const ADMIN_PORT: u16 = 9090;
const KEYS_FILE: &str = "demo-keys.json";
/// Locked while a demo runs over the directory.
const LOCK_FILE: &str = "demo.lock";
/// Where the gateway listens unless told otherwise.
const LISTEN: &str = "127.0.0.1:8080";

/// The demo's keys, as its own file has them.
#[derive(Serialize, Deserialize)]
struct Keys {
    org: OrgId,
    writer_id: UserId,
    reader: ApiKey,
    writer: ApiKey,
}

/// What can be chosen.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where the gateway listens
    #[arg(long, value_name = "ADDRESS", default_value = LISTEN)]
    listen: SocketAddr,
    /// Where the demo keeps its state; default: a new temporary directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Runs the demo until SIGINT or SIGTERM.
///
/// # Errors
/// What could not be bound, opened or started, and why; a temporary directory that was made is gone then.
pub(super) fn run(args: Args) -> anyhow::Result<()> {
    telemetry::init(telemetry::Settings { level: tracing::level_filters::LevelFilter::WARN, ..Default::default() });
    let mut signals = Signals::new()?;
    let temporary = args.dir.is_none();
    let dir = Directory::take(args.dir)?;
    let (app, store, keys) = start(&dir.path, args.listen).inspect_err(|_| {
        if temporary {
            let removed = fs::remove_dir_all(&dir.path);
            removed.unwrap_or_else(|error| tracing::warn!(%error, "{} cannot be removed", dir.path.display()));
        }
    })?;
    let link = link(&app.management, keys.org)?;
    super::output::line(page::page(&app, &dir.path, args.listen, &keys, link.as_deref()))?;
    // SIGHUP too: the terminal that the demo ran in was closed. Nobody takes over from a demo: no lame duck.
    signals.wait();
    super::output::note("stopping; everything stays in the directory");
    app.without_lame_duck().stop();
    store.stop()
}

fn start(dir: &Path, listen: SocketAddr) -> anyhow::Result<(App, Store, Keys)> {
    let store = Store::start(dir)?;
    let listen = if listen.port() == 0 { free_address(listen.ip(), 0)? } else { listen };
    let app = App::start(configuration(dir, listen, store.address)?).map_err(|error| {
        let cause = error.root_cause().downcast_ref::<io::Error>();
        let in_use = cause.is_some_and(|cause| cause.kind() == io::ErrorKind::AddrInUse);
        let advice = if in_use { "; choose another address with --listen" } else { "" };
        error.context(format!("cannot start the demo's gateway{advice}"))
    })?;
    let keys = prepare(dir, &app.management, &store)?;
    Ok((app, store, keys))
}

/// The demo's directory, which no other demo has as long as this lives.
struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Makes it when it is missing, under the temporary directory when none is named, and locks it.
    fn take(dir: Option<PathBuf>) -> anyhow::Result<Self> {
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
        let dir = dir.unwrap_or_else(|| {
            let name = format!("keygate-demo-{}", &Uuid::new_v4().simple().to_string()[..8]);
            std::env::temp_dir().join(name)
        });
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.with_context(|| format!("cannot make the directory {}", dir.display()))?;
        let path = fs::canonicalize(&dir).with_context(|| format!("cannot use the directory {}", dir.display()))?;
        let file = path.join(LOCK_FILE);
        let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(&file);
        let lock = lock.with_context(|| format!("cannot open {}", file.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => bail!("a demo is running over {} already", path.display()),
            Err(TryLockError::Error(e)) => Err(e).with_context(|| format!("cannot lock {}", file.display())),
        }
    }
}

/// The query store, embedded on a thread of its own.
struct Store {
    address: SocketAddr,
    /// For the seed; a second service over the same file, as another process could have.
    dir: PathBuf,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Store {
    fn start(dir: &Path) -> anyhow::Result<Self> {
        let settings = settings(dir);
        let service = query_store::open(&settings)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("query-store".into()).spawn(move || {
            let told = async {
                // The sender is dropped only together with the demo.
                stopped.await.ok();
            };
            query_store::run(listener, service, settings.drain, told)
        })?;
        Ok(Self { address, dir: dir.to_owned(), stop, thread })
    }

    /// Stores the demo's queries.
    fn seed(&self, caller: Caller) -> anyhow::Result<()> {
        let service: QueryService = query_store::open(&settings(&self.dir))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(query_store::seed(&service, caller, QUERIES, clock::now()))?;
        Ok(())
    }

    fn stop(self) -> anyhow::Result<()> {
        // A store that has ended already has said why.
        self.stop.send(()).ok();
        match self.thread.join() {
            Ok(ended) => ended.context("the query store ended"),
            Err(_) => bail!("the query store panicked"),
        }
    }
}

fn settings(dir: &Path) -> query_store::Settings {
    query_store::Settings::embedded(dir.join("queries.db"))
}

/// Writes the gateway's configuration into the directory, where the other commands find it, and reads it back.
fn configuration(dir: &Path, listen: SocketAddr, store: SocketAddr) -> anyhow::Result<Config> {
    let admin = free_address(IpAddr::V4(Ipv4Addr::LOCALHOST), ADMIN_PORT)?;
    let session = session_block(listen);
    let text = format!(
        r#"# Written by `keygate demo` at every start. Every key is explained in the project's config/keygate.yaml.
listen:
  - address: "{listen}"
admin:
  socket: admin.sock
  address: "{admin}"
upstream:
  endpoints: ["http://{store}"]
state:
  embedded: {{ path: state.db }}
limits:
  key: {{ requests: 1000, per: 1h, burst: 1000 }}
  org: {{ concurrent: 100 }}
audit: {{ path: audit }}
{session}routes:
  - {{ name: queries.list, methods: [GET], path: "/api/queries", permission: "queries:read" }}
  - {{ name: queries.create, methods: [POST], path: "/api/queries", permission: "queries:write" }}
  - {{ name: queries.read, methods: [GET], path: "/api/queries/{{id}}", permission: "queries:read" }}
  - {{ name: queries.update, methods: [PUT], path: "/api/queries/{{id}}", permission: "queries:write" }}
  - {{ name: queries.delete, methods: [DELETE], path: "/api/queries/{{id}}", permission: "queries:write" }}
"#
    );
    let path = dir.join("keygate.yaml");
    fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Config::parse(&path, &text)?)
}

/// The dashboard, where browsers on this machine reach it: they keep no session for others without encryption.
fn session_block(listen: SocketAddr) -> String {
    let gateway = local_address(listen);
    if !gateway.ip().is_loopback() {
        return "# No dashboard: browsers keep sessions for https, or for this machine only.\n".into();
    }
    format!("session: {{ origin: \"http://{gateway}\" }}\n")
}

/// An address of this machine with a port that nobody has, the preferred one if possible.
fn free_address(ip: IpAddr, preferred: u16) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((ip, preferred)).or_else(|_| TcpListener::bind((ip, 0)));
    Ok(listener.context("there is no free port")?.local_addr()?)
}

/// The keys of an earlier start; else everything anew. The file comes last, so a demo that was interrupted begins again.
fn prepare(dir: &Path, management: &Management, store: &Store) -> anyhow::Result<Keys> {
    let path = dir.join(KEYS_FILE);
    if let Ok(text) = fs::read_to_string(&path) {
        return serde_json::from_str(&text).with_context(|| format!("{} is not what the demo wrote", path.display()));
    }
    let keys = create(management)?;
    store.seed(Caller { org: keys.org, user: keys.writer_id })?;
    let text = zeroize::Zeroizing::new(serde_json::to_string(&keys)?);
    write_private(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(keys)
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// Creates the organization, its two users and their keys.
fn create(management: &Management) -> anyhow::Result<Keys> {
    runtime()?.block_on(async {
        let orgs = management.list_orgs(OPERATOR, clock::now()).await?;
        // An organization that is left over from an interrupted start stays as it is: its keys can be shown no more.
        let name =
            if orgs.iter().any(|org| org.name == ORG) { format!("{ORG}-{}", orgs.len()) } else { ORG.to_owned() };
        let org = management.create_org(OPERATOR, &name, clock::now()).await?.id;
        let (_, reader) = create_user(management, org, "reader@demo.example", &["queries:read"]).await?;
        let permissions = ["queries:read", "queries:write"];
        let (writer_id, writer) = create_user(management, org, "writer@demo.example", &permissions).await?;
        Ok(Keys { org, writer_id, reader, writer })
    })
}

/// Creates a user and their key.
async fn create_user(
    management: &Management,
    org: OrgId,
    email: &str,
    permissions: &[&str],
) -> anyhow::Result<(UserId, ApiKey)> {
    let permissions = permissions.iter().map(|permission| permission.parse()).collect::<Result<_, _>>()?;
    let org = org.to_string();
    let user = management.create_user(OPERATOR, &org, email, permissions, clock::now()).await?.id;
    let new_key = management.create_key(OPERATOR, &org, &user.to_string(), "demo", clock::now()).await?;
    Ok((user, new_key.api_key))
}

/// Creates a sign-in link for the demo's administrator; none when the configuration has no web sessions.
fn link(management: &Management, org: OrgId) -> anyhow::Result<Option<String>> {
    runtime()?.block_on(async {
        let org = org.to_string();
        let mut link = management.create_link(OPERATOR, &org, ADMIN, clock::now()).await;
        if let Err(ManagementError::NoUser(_)) = link {
            let permissions = ["org:admin", "queries:read", "queries:write"];
            let permissions = permissions.map(|permission| permission.parse().expect("these are permissions")).to_vec();
            management.create_user(OPERATOR, &org, ADMIN, permissions, clock::now()).await?;
            link = management.create_link(OPERATOR, &org, ADMIN, clock::now()).await;
        }
        match link {
            Ok(link) => Ok(Some(link.url.expose().to_owned())),
            Err(ManagementError::NoSessions) => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
}

/// A runtime for some operations before the gateway serves.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
