//! Description of the servers of a deployment, for diagnosis: also of servers that cannot hold the state.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{Value, cmd};

use super::connection::Connection;
use super::dial::{ConnectError, dial};
use super::hash_slots::parse_slots;
use super::sentinel;
use super::server_info::ServerInfo;
use super::settings::{Address, Servers};
use super::shared::ClientShared;
use domain::clock;

/// Settings of a server that its `INFO` does not have.
const SETTINGS: [&str; 6] =
    ["appendfsync", "save", "min-replicas-to-write", "min-replicas-max-lag", "protected-mode", "requirepass"];

/// A server, and its description; or the error by which it cannot be described.
#[derive(Debug)]
pub struct InspectedServer {
    /// Address of the server.
    pub address: Address,
    /// Description.
    pub result: Result<ServerDescription, ConnectError>,
}

/// Description of a server at one moment.
#[derive(Clone, Debug, Default)]
pub struct ServerDescription {
    /// Fields of `INFO`.
    pub info: BTreeMap<String, String>,
    /// Settings by `CONFIG GET`; none when the user may not read them. A password shows as `set`.
    pub settings: Option<BTreeMap<String, String>>,
    /// Clock of the server minus the clock of this machine, in microseconds; exact to half of the round trip.
    pub clock_offset: i64,
    /// Duration of a `TIME` command.
    pub round_trip: Duration,
}

/// Describes the servers that hold the state: the server, the primary that the sentinels report, or the
/// primaries of the Cluster.
///
/// # Errors
/// [`ConnectError`] when no sentinel reports the primary.
pub async fn describe_servers(shared: &ClientShared) -> Result<Vec<InspectedServer>, ConnectError> {
    let addresses = match &shared.settings.servers {
        Servers::Single(address) => vec![address.clone()],
        Servers::Sentinel { sentinels, service } => {
            vec![sentinel::find_primary(shared, sentinels, service, 0).await?]
        }
        Servers::Cluster(nodes) => nodes.clone(),
    };
    let mut primaries = Vec::new();
    let mut described = Vec::new();
    for address in addresses {
        let result = describe(shared, &address, &mut primaries).await;
        described.push(InspectedServer { address, result });
    }
    // Of a Cluster, the primaries hold the state, whatever nodes are configured.
    for address in primaries {
        if !described.iter().any(|server| server.address == address) {
            let result = describe(shared, &address, &mut Vec::new()).await;
            described.push(InspectedServer { address, result });
        }
    }
    Ok(described)
}

/// Describes one server, and adds the primaries of its Cluster to `primaries`.
async fn describe(
    shared: &ClientShared,
    address: &Address,
    primaries: &mut Vec<Address>,
) -> Result<ServerDescription, ConnectError> {
    let settings = &shared.settings;
    let (connection, _driver) = dial(shared, address, &settings.login.load(), settings.database).await?;
    let info: String = connection.query(&cmd("INFO")).await?;
    let info = ServerInfo::parse(&info);
    if info.is_cluster() && primaries.is_empty() {
        let slots: Value = connection.query(cmd("CLUSTER").arg("SLOTS")).await?;
        primaries.extend(parse_slots(&slots, address).unwrap_or_default().into_iter().map(|range| range.primary));
        primaries.sort_unstable();
        primaries.dedup();
    }
    let (clock_offset, round_trip) = compare_clocks(&connection).await?;
    Ok(ServerDescription { info: info.0, settings: read_settings(&connection).await, clock_offset, round_trip })
}

async fn compare_clocks(connection: &Connection) -> Result<(i64, Duration), ConnectError> {
    let before = clock::now();
    let (seconds, micros): (u64, u64) = connection.query(&cmd("TIME")).await?;
    let after = clock::now();
    let theirs = seconds.saturating_mul(1_000_000).saturating_add(micros);
    let ours = before.0.midpoint(after.0);
    Ok((
        theirs.cast_signed().saturating_sub(ours.cast_signed()),
        Duration::from_micros(after.0.saturating_sub(before.0)),
    ))
}

/// Reads settings; none when the server refuses, as it does to a user without the right.
async fn read_settings(connection: &Connection) -> Option<BTreeMap<String, String>> {
    let mut command = cmd("CONFIG");
    command.arg("GET").arg(&SETTINGS);
    let reply: Vec<String> = connection.query(&command).await.ok()?;
    let mut settings: BTreeMap<String, String> =
        reply.as_chunks().0.iter().map(|[name, value]| (name.clone(), value.clone())).collect();
    if let Some(password) = settings.get_mut("requirepass").filter(|password| !password.is_empty()) {
        "set".clone_into(password);
    }
    Some(settings)
}

impl ServerDescription {
    /// A field of `INFO`; empty when the server does not have it.
    pub fn field(&self, name: &str) -> &str {
        self.info.get(name).map_or("", String::as_str)
    }

    /// A number of `INFO`; 0 when the server does not have it.
    pub fn number(&self, name: &str) -> u64 {
        self.field(name).parse().unwrap_or(0)
    }

    /// A setting; none when the settings may not be read.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.as_ref().map(|settings| settings.get(name).map_or("", String::as_str))
    }
}
