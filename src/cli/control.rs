//! Performs management operations: on the running gateway through its admin socket, on the stores when none runs, or on
//! a gateway elsewhere through its management API.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::StatusCode;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

use super::client::ClientRequest;
use super::installation::Installation;
use super::offline::Stores;
use super::remote::Remote;
use super::secret_output;
use super::{CliError, ExitStatus};
use ::control::admin::OPERATIONS_PATH;
use ::control::admin::{Operation, Reply};
use ::control::management::{Activity, Org};
use domain::key::KeyId;
use domain::problem::Problem;

/// Performs one operation, on the running gateway if there is one.
pub(super) fn perform(installation: &Installation, operation: &Operation) -> Result<Reply, CliError> {
    with_server(installation, async |server| server.perform(operation).await)
}

/// Does some work on the running gateway, or on the stores when none runs: opens them once, and closes them afterwards.
pub(super) fn with_server<T>(
    installation: &Installation,
    work: impl AsyncFnOnce(&mut Server<'_>) -> Result<T, CliError>,
) -> Result<T, CliError> {
    runtime()?.block_on(async {
        let mut server = Server::open(installation).await?;
        let done = work(&mut server).await;
        server.close().await;
        done
    })
}

/// Activity of keys, as far as it can be read.
pub(super) type KeyActivities = BTreeMap<KeyId, Activity>;

/// Cursors of a list so far. A server that repeats one would have the list go on for ever.
#[derive(Default)]
pub(super) struct Cursors(HashSet<String>);

impl Cursors {
    /// Adds the cursor of the next page, and returns it.
    pub(super) fn add(&mut self, cursor: String) -> Result<String, CliError> {
        if self.0.insert(cursor.clone()) {
            Ok(cursor)
        } else {
            Err(anyhow!("the gateway repeats a page of this list, which would not end; try again").into())
        }
    }
}

/// Performs an operation, and again for each further page of its list. Calls `each` with every reply, and with the
/// activity of the keys in it: where the journal cannot be read, and for other replies, none.
pub(super) fn for_each_page(
    installation: &Installation,
    operation: Operation,
    each: impl FnMut(Reply, &KeyActivities) -> Result<(), CliError>,
) -> Result<(), CliError> {
    with_server(installation, async |server| server.for_each_page(operation, each).await)
}

/// Performs an operation on the running gateway, and again for each further page of its list. Calls `each` with every
/// reply; with none when no gateway runs on this machine: its stores are not opened for this.
pub(super) fn for_each_page_of_gateway(
    installation: &Installation,
    mut operation: Operation,
    mut each: impl FnMut(Reply),
) -> Result<(), CliError> {
    runtime()?.block_on(async {
        let mut server = match installation.remote() {
            Some(remote) => Server::Remote(Remote::new(remote)),
            None => match connect(installation.socket()).await? {
                Some(stream) => Server::Gateway(installation, Some(stream)),
                None => return Ok(()),
            },
        };
        let mut cursors = Cursors::default();
        loop {
            let reply = server.perform(&operation).await?;
            let next = reply.next_cursor().map(str::to_owned);
            each(reply);
            let (Some(next), Some(cursor)) = (next, operation.cursor_mut()) else { return Ok(()) };
            *cursor = Some(cursors.add(next)?);
        }
    })
}

/// The performer of a command's operations.
pub(super) enum Server<'a> {
    /// The running gateway. Each operation has a connection of its own; the first one is open already.
    Gateway(&'a Installation, Option<UnixStream>),
    /// The stores of a gateway that does not run.
    Stores(Box<Stores>),
    /// A gateway elsewhere.
    Remote(Remote<'a>),
}

impl<'a> Server<'a> {
    pub(super) async fn open(installation: &'a Installation) -> Result<Self, CliError> {
        if let Some(remote) = installation.remote() {
            return Ok(Self::Remote(Remote::new(remote)));
        }
        if let Some(stream) = connect(installation.socket()).await? {
            return Ok(Self::Gateway(installation, Some(stream)));
        }
        if !installation.may_work_offline() {
            return Err(installation.unreachable());
        }
        Ok(Self::Stores(Box::new(Stores::open(&installation.config()?).await?)))
    }

    /// Performs one operation; none that makes a secret which standard output could not take.
    pub(super) async fn perform(&mut self, operation: &Operation) -> Result<Reply, CliError> {
        secret_output::check_before(operation)?;
        match self {
            Self::Stores(stores) => stores.perform(operation.clone()).await,
            Self::Remote(remote) => remote.perform(operation).await,
            Self::Gateway(installation, stream) => {
                let stream = take_stream(installation, stream).await?;
                send_operation(installation, stream, operation).await
            }
        }
    }

    /// The same as the function of this name, for several lists.
    pub(super) async fn for_each_page(
        &mut self,
        mut operation: Operation,
        mut each: impl FnMut(Reply, &KeyActivities) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let mut cursors = Cursors::default();
        loop {
            let reply = self.perform(&operation).await?;
            let next = reply.next_cursor().map(str::to_owned);
            let activity = self.activity(&reply).await;
            each(reply, &activity)?;
            let (Some(next), Some(cursor)) = (next, operation.cursor_mut()) else { return Ok(()) };
            *cursor = Some(cursors.add(next)?);
        }
    }

    /// Reads all pages of a list; `items` are those of one.
    pub(super) async fn read_all<T>(
        &mut self,
        mut operation: Operation,
        items: impl Fn(Reply) -> Vec<T>,
    ) -> Result<Vec<T>, CliError> {
        let mut all = Vec::new();
        let mut cursors = Cursors::default();
        loop {
            let reply = self.perform(&operation).await?;
            let next = reply.next_cursor().map(str::to_owned);
            all.extend(items(reply));
            let (Some(next), Some(cursor)) = (next, operation.cursor_mut()) else { return Ok(all) };
            *cursor = Some(cursors.add(next)?);
        }
    }

    /// Reads all organizations.
    pub(super) async fn read_orgs(&mut self) -> Result<Vec<Org>, CliError> {
        let items = |reply| if let Reply::Orgs(page) = reply { page.items } else { Vec::new() };
        self.read_all(Operation::list_orgs(), items).await
    }

    /// The activity of the keys of a reply.
    async fn activity(&mut self, reply: &Reply) -> KeyActivities {
        let Reply::Keys(page) = reply else { return KeyActivities::new() };
        let Some(first) = page.items.first() else { return KeyActivities::new() };
        let keys = page.items.iter().map(|key| key.id).collect();
        match self.perform(&Operation::Activity { org: first.org.to_string(), keys }).await {
            Ok(Reply::Activity(report)) => report.keys,
            _ => KeyActivities::new(),
        }
    }

    pub(super) async fn close(self) {
        match self {
            Self::Gateway(..) | Self::Remote(_) => {}
            Self::Stores(stores) => stores.close().await,
        }
    }
}

/// Sends a request to the admin socket of the running gateway, and reads the whole response.
pub(super) fn send(installation: &Installation, request: ClientRequest<'_>) -> Result<(StatusCode, Bytes), CliError> {
    let socket = installation.socket();
    runtime()?.block_on(async {
        let stream = connect(socket).await?.ok_or_else(|| installation.unreachable())?;
        exchange(stream, request).await.map_err(|error| {
            CliError::new(
                ExitStatus::Unreachable,
                error.context(format!("{}: the gateway did not respond", socket.display())),
            )
        })
    })
}

/// Fetches a document of the running gateway from its admin socket. `target` is the path with its query.
pub(super) fn fetch<T: DeserializeOwned>(installation: &Installation, target: &str) -> Result<T, CliError> {
    let (status, body) = send(installation, ClientRequest::get(target))?;
    if status != StatusCode::OK {
        return Err(anyhow!("the gateway responded with {status}; is it of an earlier version?").into());
    }
    Ok(serde_json::from_slice(&body).context("cannot parse the gateway's response; is it of another version?")?)
}

/// Sends a request, and reads the whole response.
pub(super) async fn exchange<S>(stream: S, request: ClientRequest<'_>) -> anyhow::Result<(StatusCode, Bytes)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let response = request.send(stream).await?;
    Ok((response.status, response.bytes().await?))
}

/// Creates a runtime for one command.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Connects to an admin socket; none when no process listens on it.
async fn connect(path: &Path) -> Result<Option<UnixStream>, CliError> {
    match UnixStream::connect(path).await {
        Ok(stream) => Ok(Some(stream)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(e) => {
            let advice = match e.kind() {
                io::ErrorKind::PermissionDenied => "run this as the user that the gateway runs as",
                _ => "check the log of the gateway",
            };
            let error = anyhow!(e).context(format!("{}: cannot be reached; {advice}", path.display()));
            Err(CliError::new(ExitStatus::Unreachable, error))
        }
    }
}

/// The connection that is open already, or another one.
pub(super) async fn take_stream(
    installation: &Installation,
    open: &mut Option<UnixStream>,
) -> Result<UnixStream, CliError> {
    let stream = match open.take() {
        Some(stream) => Some(stream),
        None => connect(installation.socket()).await?,
    };
    stream.ok_or_else(|| CliError::new(ExitStatus::Unreachable, anyhow!("the gateway stopped; try again")))
}

/// Sends one operation to the running gateway.
async fn send_operation(
    installation: &Installation,
    stream: UnixStream,
    operation: &Operation,
) -> Result<Reply, CliError> {
    let body = serde_json::to_vec(operation).context("cannot serialize the operation")?;
    let (status, body) = exchange(stream, ClientRequest::post(OPERATIONS_PATH, body)).await.map_err(|e| {
        // The gateway may have performed the operation all the same, so the command must not be repeated blindly.
        let socket = installation.socket().display();
        let message =
            format!("{socket}: the gateway did not respond; check whether the change was made before you repeat");
        CliError::new(ExitStatus::Unreachable, e.context(message))
    })?;
    if status == StatusCode::OK {
        return Ok(
            serde_json::from_slice(&body).context("cannot parse the gateway's reply; is it of another version?")?
        );
    }
    let problem: Problem = serde_json::from_slice(&body).with_context(|| {
        format!("the gateway responded with {status}, and its problem cannot be parsed; is it of another version?")
    })?;
    let exit = match status {
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => ExitStatus::Temporary,
        StatusCode::BAD_REQUEST => ExitStatus::Usage,
        _ => ExitStatus::Failed,
    };
    Err(CliError::new(exit, anyhow!(problem.detail)))
}
