//! `keygate demo`: runs the gateway and query-store on this machine, with an organization, users, keys and 250 queries.
//! With `--upstream`, the gateway is in front of a server of the caller instead. With `--fleet`, two gateways on one
//! Redis are put under load, killed and compared with what they promise ([`fleet`]).
//!
//! Everything is as in production except one thing: the demo keeps its keys in a file, so that it can print them again
//! at the next start in the same directory. A gateway never stores keys.

mod config;
mod directory;
mod backend;
mod store;
mod page;
mod fleet;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::CliError;
use super::offline::this_user;
use super::serve::Signals;
use crate::app::App;
use ::control::management::{self, ApiKey, Management, ManagementError, NewKeyRequest, PolicyUpdate, SecretSource};
use domain::clock;
use domain::identity::{OrgId, Permission, UserId};
use platform::telemetry;
use query_store::service::Caller;

use backend::Backend;
pub(super) use config::free_address;
use config::write_config;
use directory::Directory;
pub(super) use page::quote_text;

/// Number of queries: enough for thirteen pages of the default size.
const QUERIES: u32 = 250;
const ORG: &str = "demo";
/// Admin of the demo's organization.
const ADMIN: &str = "admin@demo.example";
/// Keys of the demo with query-store, and of the one in front of another server, which has no queries of its own.
const KEYS_FILE: &str = "demo-keys.json";
const UPSTREAM_KEYS_FILE: &str = "demo-upstream-keys.json";
/// Default address of the gateway.
const LISTEN: &str = "127.0.0.1:8080";

/// The demo's keys, as stored in its keys file.
#[derive(Serialize, Deserialize)]
struct Keys {
    org: OrgId,
    writer_id: UserId,
    reader: ApiKey,
    writer: ApiKey,
}

/// Arguments of `keygate demo`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Address that the gateway listens on
    #[arg(long, value_name = "ADDRESS", default_value = LISTEN)]
    listen: SocketAddr,
    /// Server to put the gateway in front of, such as http://127.0.0.1:3000, instead of query-store
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Directory of the demo; default: a temporary one, which --fleet removes in the end
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Run two gateways under load, kill one, revoke a key, and check the numbers; needs redis-server
    #[arg(long, conflicts_with_all = ["listen", "upstream"])]
    fleet: bool,
    /// Print the numbers of --fleet as one JSON object
    #[arg(long, requires = "fleet")]
    json: bool,
    /// Process id of the demo that has started this process, and the program with its arguments that it becomes
    #[arg(long, hide = true, num_args = 2.., allow_hyphen_values = true, conflicts_with_all = ["fleet", "upstream"])]
    child: Vec<OsString>,
}

/// Runs the demo until SIGINT or SIGTERM; with `--fleet`, until its numbers are there.
///
/// # Errors
/// The listener or store that could not be bound or opened, and the cause. A new temporary directory is removed. Those
/// of [`fleet::run`].
pub(super) fn run(args: Args) -> Result<(), CliError> {
    if !args.child.is_empty() {
        return Err(fleet::become_program(&args.child).into());
    }
    if args.fleet {
        return fleet::run(args.dir, args.json);
    }
    let level = tracing::level_filters::LevelFilter::WARN;
    let logs = telemetry::init_queued(telemetry::Settings { level, ..Default::default() });
    let served = serve(args);
    logs.flush();
    Ok(served?)
}

fn serve(args: Args) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let temporary = args.dir.is_none();
    let dir = Directory::take(args.dir)?;
    let (app, backend, keys) = start(&dir.path, args.listen, args.upstream).inspect_err(|_| {
        if temporary {
            let removed = fs::remove_dir_all(&dir.path);
            removed.unwrap_or_else(|error| tracing::warn!(%error, "{} cannot be removed", dir.path.display()));
        }
    })?;
    let link = link(&app.management, keys.org)?;
    super::output::lines(page::page(&app, &dir.path, args.listen, &backend, &keys, link.as_deref()))?;
    // SIGHUP stops the demo as well: its terminal was closed. No load balancer is in front of it, so no lame duck.
    signals.wait();
    super::output::note("stopping; the directory is kept");
    app.without_lame_duck().stop();
    backend.stop()
}

fn start(dir: &Path, listen: SocketAddr, upstream: Option<String>) -> anyhow::Result<(App, Backend, Keys)> {
    let backend = Backend::start(dir, upstream)?;
    let listen = if listen.port() == 0 { free_address(listen.ip(), 0)? } else { listen };
    let app = App::start(write_config(dir, listen, &backend)?).map_err(|error| {
        let cause = error.root_cause().downcast_ref::<io::Error>();
        let in_use = cause.is_some_and(|cause| cause.kind() == io::ErrorKind::AddrInUse);
        let advice = if in_use { "; choose another address with --listen" } else { "" };
        error.context(format!("cannot start the demo's gateway{advice}"))
    })?;
    let keys = prepare(dir, &app.management, &backend)?;
    Ok((app, backend, keys))
}

/// The keys of an earlier start, or new records and keys. The keys file is written last, so that an interrupted demo
/// begins again.
fn prepare(dir: &Path, management: &Management, backend: &Backend) -> anyhow::Result<Keys> {
    let path = dir.join(backend.keys_file());
    if let Ok(text) = fs::read_to_string(&path) {
        return serde_json::from_str(&text).with_context(|| {
            format!("{} cannot be parsed; remove it, or choose another directory with --dir", path.display())
        });
    }
    let keys = create(management)?;
    backend.seed(Caller { org: keys.org, user: keys.writer_id })?;
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
        let org = create_org(management).await?;
        let (_, reader) = create_user(management, org, "reader@demo.example", &["queries:read"]).await?;
        let permissions = ["queries:read", "queries:write"];
        let (writer_id, writer) = create_user(management, org, "writer@demo.example", &permissions).await?;
        Ok(Keys { org, writer_id, reader, writer })
    })
}

/// Creates the organization. One that is left over from an interrupted start stays as it is: its keys can be shown no
/// more.
async fn create_org(management: &Management) -> anyhow::Result<OrgId> {
    let mut name = ORG.to_owned();
    let mut number = 1;
    loop {
        match management::create_org(management, &this_user(), &name, None, clock::now()).await {
            Err(ManagementError::Taken("name")) => name = format!("{ORG}-{number}"),
            created => return Ok(created?.id),
        }
        number += 1;
    }
}

/// Creates a user and their key.
async fn create_user(
    management: &Management,
    org: OrgId,
    email: &str,
    permissions: &[&str],
) -> anyhow::Result<(UserId, ApiKey)> {
    let permissions =
        permissions.iter().map(|permission| permission.parse()).collect::<Result<Vec<Permission>, _>>()?;
    let org = org.to_string();
    let user =
        management::create_user(management, &this_user(), &org, email, permissions.into(), clock::now()).await?.id;
    let request = NewKeyRequest { user: &user.to_string(), name: "demo", policy: PolicyUpdate::default(), plan: None };
    let new_key =
        management::create_key(management, &this_user(), &org, request, SecretSource::Generated, clock::now()).await?;
    let Some(api_key) = new_key.api_key else { unreachable!("the secret was generated") };
    Ok((user, api_key))
}

/// Creates a sign-in link for the demo's administrator; none when the configuration has no web sessions.
fn link(management: &Management, org: OrgId) -> anyhow::Result<Option<String>> {
    runtime()?.block_on(async {
        let org = org.to_string();
        let mut link = management::create_link(management, &this_user(), &org, ADMIN, clock::now()).await;
        if let Err(ManagementError::NoUser(_)) = link {
            let permissions = ["org:admin", "queries:read", "queries:write"];
            let permissions = permissions.map(|permission| permission.parse().expect("these are permissions")).to_vec();
            management::create_user(management, &this_user(), &org, ADMIN, permissions.into(), clock::now()).await?;
            link = management::create_link(management, &this_user(), &org, ADMIN, clock::now()).await;
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
