//! `keygate events`: records that a sink of the audit gets for people, tried before they matter.

use anyhow::anyhow;
use clap::Subcommand;
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use super::installation::Installation;
use super::list::{List, Row};
use super::output::or_dash;
use super::show::Format;
use super::table::Column;
use super::{CliError, ExitStatus, control};
use domain::clock::{self, Micros};
use domain::counted::counted;
use journal::audit::Record;
use journal::shipping::{TrialError, try_sink};
use platform::outbound::delivery::in_full;

/// Arguments of `keygate events`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send a test record of each kind to a sink of `audit.ship`, and show what it takes
    ///
    /// By the sink's own address, signature, TLS and time-out: announcements, changes, refusals and a request, as far
    /// as its `records` includes them. Each has the member `test: true`, which no other record has. The journal and the
    /// position of the sink stay as they are, also while a gateway runs. Exit code 1 when a record is not accepted.
    Test {
        /// Name of the sink
        #[arg(long, value_name = "NAME")]
        sink: String,
    },
}

/// Kinds of records: action, detail of the path, and outcome.
const KINDS: [(&str, &str, &str); 15] = [
    ("key.expiring", "/7d/END", "completed"),
    ("key.unused", "/7d/END", "completed"),
    ("key.leaked", "/test/https://example.com/", "completed"),
    ("token.expiring", "/TESTTESTTE/1d/END", "completed"),
    ("token.leaked", "/TESTTESTTE/test/https://example.com/", "completed"),
    ("quota.near", "/80/100/END", "completed"),
    ("key.create", "", "completed"),
    ("key.rotate", "", "completed"),
    ("key.disable", "", "completed"),
    ("key.enable", "", "completed"),
    ("key.revoke", "", "completed"),
    (REQUEST, "/", "key_disabled"),
    (REQUEST, "/", "key_expired"),
    (REQUEST, "/", "quota_exhausted"),
    (REQUEST, "/", "completed"),
];
/// Action of requests.
const REQUEST: &str = "test";

/// An organization that no state has.
const ORG: &str = "org_00000000000000000000000000000000";

/// A test record, and the answer to it.
#[derive(Serialize)]
struct Trial {
    id: Uuid,
    action: String,
    outcome: String,
    accepted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Row for Trial {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("ACTION", 1, |trial| trial.action.clone()),
        Column::new("OUTCOME", 2, |trial| trial.outcome.clone()),
        Column::new("ACCEPTED", 3, |trial| if trial.accepted { "yes" } else { "no" }.to_owned()),
        Column::new("ERROR", 4, |trial| or_dash(trial.error.as_ref())),
    ];
}

impl Args {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        let Command::Test { sink: name } = self.command;
        let config = installation.config()?;
        let sinks = &config.shipping.sinks;
        let sink = sinks.iter().find(|sink| sink.name == name).ok_or_else(|| {
            let known: Vec<&str> = sinks.iter().map(|sink| &*sink.name).collect();
            let error = anyhow!("`audit.ship` has no sink `{name}`; it has: {}", known.join(", "));
            CliError::new(ExitStatus::Usage, error)
        })?;
        let mut list = List::new("", self.format);
        let (mut sent, mut refused) = (0_u64, 0);
        let runtime = control::runtime()?;
        for record in records(&config.audit.gateway, clock::now()).filter(|record| sink.records.include(record)) {
            let (id, action, outcome) = (record.id, record.action.clone(), record.outcome.name().to_owned());
            let error = match runtime.block_on(try_sink(sink, record)) {
                Err(TrialError::Delivery(error)) => Some(in_full(&*error)),
                answer => answer.map(|()| None).map_err(anyhow::Error::from)?,
            };
            sent += 1;
            refused += u64::from(error.is_some());
            list.page(&[Trial { id, action, outcome, accepted: error.is_none(), error }])?;
        }
        list.end()?;
        if refused == 0 {
            return Ok(());
        }
        Err(anyhow!("{refused} of {} not accepted", counted(&sent, "test record")).into())
    }
}

/// A record of each kind, of a key that does not exist.
fn records(gateway: &str, now: Micros) -> impl Iterator<Item = Record> {
    KINDS.into_iter().map(move |(action, detail, outcome)| {
        let is_request = action == REQUEST;
        let detail = detail.replace("END", &now.to_string());
        let record = json!({
            "id": Uuid::now_v7(), "time": now.to_string(), "key_id": "testtestt", "user_id": null, "org_id": ORG,
            "auth_method": if is_request { "api-key" } else { "admin-socket" },
            "actor": if is_request { None } else { Some("test") },
            "ip": null, "user_agent": null, "action": action,
            "method": if is_request { "GET" } else { "ADMIN" },
            "path": if is_request { detail } else { format!("{action}{detail}") },
            "outcome": outcome, "status": null, "duration_us": 0, "request_bytes": 0, "response_bytes": 0,
            "gateway": gateway,
        });
        serde_json::from_value(record).expect("it has the members of a record")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::control::management::ANNOUNCED;
    use journal::shipping::ShippedRecords;

    #[test]
    fn test_records_are_of_all_announcements_and_of_each_choice_of_a_sink() {
        let of = |chosen: ShippedRecords| {
            let records = records("gw", clock::now()).filter(move |record| chosen.include(record));
            records.map(|record| record.action).collect::<Vec<_>>()
        };
        let changes = of(ShippedRecords::Changes);
        assert!(ANNOUNCED.iter().all(|action| changes.iter().any(|known| known == action)), "{changes:?}");
        assert_eq!(of(ShippedRecords::Refusals), [REQUEST; 3]);
        assert_eq!((of(ShippedRecords::All).len(), changes.len()), (KINDS.len(), KINDS.len() - 4));
    }
}
