//! Performs calls of management: on the running gateway through its admin socket, on the stores when none runs, or on a
//! gateway elsewhere. All three speak one API.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

use super::answer::Answer;
use super::call::Call;
use super::client::ClientRequest;
use super::installation::Installation;
use super::offline::Stores;
use super::remote::Remote;
use super::secret_output;
use super::{CliError, ExitStatus};
use ::control::management::{Activity, ActivityReport, Key, Org};
use domain::key::KeyId;
use domain::page::{Page, PageLimit};

/// Performs one call, on the running gateway if there is one.
pub(super) fn perform<T: DeserializeOwned>(installation: &Installation, call: &Call) -> Result<T, CliError> {
    with_server(installation, async |server| server.perform(call).await)
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

/// Keys by the digests that they were looked up by.
#[derive(Deserialize)]
struct FoundKeys {
    found: BTreeMap<String, KeyId>,
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

/// Reads all pages of a list of the running gateway; none when no gateway runs on this machine: its stores are not
/// opened for this.
pub(super) fn read_of_gateway<T: DeserializeOwned>(
    installation: &Installation,
    call: Call,
) -> Result<Vec<T>, CliError> {
    runtime()?.block_on(async {
        let mut server = match installation.remote() {
            Some(remote) => Server::Remote(Remote::new(remote)),
            None => match connect(installation.socket()).await? {
                Some(stream) => Server::Gateway(installation, Some(stream)),
                None => return Ok(Vec::new()),
            },
        };
        server.read_all(call).await
    })
}

/// The performer of a command's calls.
pub(super) enum Server<'a> {
    /// The running gateway. Each call has a connection of its own; the first one is open already.
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

    /// Performs one call, and reads its answer.
    pub(super) async fn perform<T: DeserializeOwned>(&mut self, call: &Call) -> Result<T, CliError> {
        self.send(call).await?.read(call)
    }

    /// Performs one call whose answer is no JSON.
    pub(super) async fn fetch_body(&mut self, call: &Call) -> Result<Bytes, CliError> {
        self.send(call).await?.body().cloned()
    }

    /// Sends one call; none that makes a secret which standard output could not take.
    async fn send(&mut self, call: &Call) -> Result<Answer, CliError> {
        if call.has_empty_segment() {
            return Err(CliError::new(ExitStatus::Usage, anyhow!("an empty name or id names nothing; give one")));
        }
        if call.makes_secret {
            secret_output::check()?;
        }
        match self {
            Self::Stores(stores) => Ok(stores.send(call).await?),
            Self::Remote(remote) => remote.send(call).await,
            Self::Gateway(installation, stream) => {
                let stream = take_stream(installation, stream).await?;
                send_call(installation, stream, call).await
            }
        }
    }

    /// Performs the call of a list, and again for each further page. Calls `each` with the items of every page.
    pub(super) async fn for_each_page<T: DeserializeOwned>(
        &mut self,
        call: Call,
        mut each: impl AsyncFnMut(&mut Self, Vec<T>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let mut call = call.with_query(&json!({ "limit": PageLimit::MAX }));
        let mut cursors = Cursors::default();
        loop {
            let Page { items, next } = self.perform(&call).await?;
            each(self, items).await?;
            let Some(next) = next else { return Ok(()) };
            call = call.at_cursor(cursors.add(next)?);
        }
    }

    /// Reads all pages of a list.
    pub(super) async fn read_all<T: DeserializeOwned>(&mut self, call: Call) -> Result<Vec<T>, CliError> {
        let mut all = Vec::new();
        self.for_each_page(call, async |_, items| {
            all.extend(items);
            Ok(())
        })
        .await?;
        Ok(all)
    }

    /// Reads all organizations.
    pub(super) async fn read_orgs(&mut self) -> Result<Vec<Org>, CliError> {
        self.read_all(Call::get(&["orgs"])).await
    }

    /// Looks keys up by digests that they have or had; those that no key has are left out.
    pub(super) async fn find_keys(&mut self, digests: &[String]) -> Result<BTreeMap<String, KeyId>, CliError> {
        let call = Call::get(&["keys"]).with_query(&json!({ "sha256": digests }));
        Ok(self.perform::<FoundKeys>(&call).await?.found)
    }

    /// The activity of keys of one organization: none where the journal cannot be read.
    pub(super) async fn activity(&mut self, keys: &[Key]) -> KeyActivities {
        let Some(first) = keys.first() else { return KeyActivities::new() };
        let ids: Vec<KeyId> = keys.iter().map(|key| key.id).collect();
        let call = Call::get(&["orgs", &first.org.to_string(), "activity"]).with_query(&json!({ "keys": ids }));
        self.perform(&call).await.map_or_else(|_| KeyActivities::new(), |report: ActivityReport| report.keys)
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

/// Sends one call to the running gateway.
async fn send_call(installation: &Installation, stream: UnixStream, call: &Call) -> Result<Answer, CliError> {
    let target = call.target();
    let response = ClientRequest::of_call(call, &target).send(stream);
    let answer = async {
        let response = response.await?;
        let (status, headers) = (response.status, response.headers.clone());
        Ok(Answer { status, headers, body: response.bytes().await? })
    };
    answer.await.map_err(|error: anyhow::Error| {
        // The gateway may have performed the call all the same, so the command must not be repeated blindly.
        let socket = installation.socket().display();
        let message =
            format!("{socket}: the gateway did not respond; check whether the change was made before you repeat");
        CliError::new(ExitStatus::Unreachable, error.context(message))
    })
}
