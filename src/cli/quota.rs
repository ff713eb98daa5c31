//! `keygate quota`: units that a key, a user or an organization may spend in a day or a month.

use std::path::PathBuf;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Subcommand;
use clap::ValueEnum;
use serde_json::json;

use super::call::Call;
use super::control;
use super::installation::Installation;
use super::output::seconds;
use super::progress::ProgressLine;
use super::show::{self, Fields, Shown};
use super::{CliError, ExitStatus, Format, RemoteCommand};
use ::control::management::{self, Key, Org, Quota, QuotaOwner, QuotaRecount, Stretch, User};
use domain::budget::{Budget, OwnBudget, Period, Spender};
use domain::clock::{self, Micros};
use domain::key::KeyId;
use journal::audit::{AuditView, SpentBy};

/// Time for which a recount waits until all gateways have shipped their records.
const SHIPPING_TIMEOUT: Duration = Duration::from_secs(60);

/// Time between two looks whether they have.
const POLL: Duration = Duration::from_millis(500);

/// Commands of `keygate quota`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Give an organization, a user or a key a quota of its own, before that of any plan, from the next request on
    Set {
        #[command(flatten)]
        owner: Owner,
        /// Units that may be spent in each period: a request costs one, or what its route says
        #[arg(long, value_name = "N", requires = "per", required_unless_present = "none")]
        units: Option<u64>,
        /// Period in UTC
        #[arg(long, value_enum)]
        per: Option<Per>,
        /// Take the quota away
        #[arg(long, conflicts_with_all = ["units", "per"])]
        none: bool,
    },
    /// Show what is spent of a quota
    Show {
        #[command(flatten)]
        owner: Owner,
    },
    /// Have nothing of a quota be spent from now to the end of the period
    Reset {
        #[command(flatten)]
        owner: Owner,
    },
    /// Set what is spent of a quota to the sum of the records of all gateways, as after a loss of the state
    ///
    /// Adds up the records in PostgreSQL, or those of the only gateway. Where several gateways ship to no PostgreSQL,
    /// `--journal` names the audit directory of each.
    Recount {
        #[command(flatten)]
        owner: Owner,
        /// Audit directory of a gateway; once for each gateway
        #[arg(long, value_name = "DIR")]
        journal: Vec<PathBuf>,
        /// Name of a gateway whose last records are lost, and not waited for
        #[arg(long, value_name = "NAME")]
        without: Vec<String>,
        /// Go on with a recount that was broken off, by what it has printed: with journals that were copied since
        #[arg(long, value_name = "TIME/USED")]
        begun: Option<Begun>,
    },
}

/// Start of a recount, and the units that were spent then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun(Stretch);

impl FromStr for Begun {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (start, used) = text.split_once('/').context("expected TIME/USED, as the recount has printed it")?;
        Ok(Self(Stretch { start: start.parse()?, used: used.parse().context("the units are no number")? }))
    }
}

/// The owner of a quota.
#[derive(Debug, clap::Args)]
pub(super) struct Owner {
    /// Id or name of the organization
    #[arg(long, value_name = "ORG", required_unless_present = "key")]
    org: Option<String>,
    /// Id or email address of a user of the organization, or name of a service
    #[arg(long, value_name = "USER", requires = "org")]
    user: Option<String>,
    /// Id of a key
    #[arg(long, value_name = "ID", conflicts_with_all = ["org", "user"])]
    key: Option<KeyId>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Per {
    /// From midnight to midnight
    Day,
    /// From the first of a month to that of the next
    Month,
}

impl RemoteCommand<Command> {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        let format = self.format;
        match self.command {
            Command::Set { owner, units, per, .. } => {
                let quota = units.zip(per).map(|(units, per)| own_budget(units, per)).transpose()?;
                let patch = json!({ "quota": quota });
                match (&owner.org, &owner.user, owner.key) {
                    (_, _, Some(key)) => {
                        show::perform::<Key>(installation, &Call::patch(&["keys", key.as_str()], &patch), format)
                    }
                    (Some(org), Some(user), None) => {
                        show::perform::<User>(installation, &Call::patch(&["orgs", org, "users", user], &patch), format)
                    }
                    (org, _, None) => {
                        let org = org.as_deref().unwrap_or_default();
                        show::perform::<Org>(installation, &Call::patch(&["orgs", org], &patch), format)
                    }
                }
            }
            Command::Show { owner } => {
                show::perform::<Quota>(installation, &Call::get(&["quota"]).with_query(&owner.body()), format)
            }
            Command::Reset { owner } => {
                show::perform::<Quota>(installation, &Call::post(&["quota", "reset"]).with_body(&owner.body()), format)
            }
            Command::Recount { owner, journal, without, begun } => {
                recount(installation, owner.body(), (&journal, without), begun, format)
            }
        }
    }
}

impl Owner {
    fn body(self) -> QuotaOwner {
        let Self { org, user, key } = self;
        QuotaOwner { org, user, key }
    }
}

/// Recounts a quota in two steps.
fn recount(
    installation: &Installation,
    owner: QuotaOwner,
    (journals, without): (&[PathBuf], Vec<String>),
    begun: Option<Begun>,
    format: Format,
) -> Result<(), CliError> {
    let views: Vec<AuditView> = journals
        .iter()
        .map(|path| AuditView::of_directory(path).with_context(|| format!("cannot read {}", path.display())))
        .collect::<anyhow::Result<_>>()?;
    let QuotaOwner { org, user, key } = owner.clone();
    let first = QuotaRecount { org, user, key, without, ..QuotaRecount::default() };
    let step = |recount: &QuotaRecount| {
        control::perform::<Quota>(installation, &Call::post(&["quota", "recount"]).with_body(recount))
    };
    let (stretch, quota) = match begun {
        Some(Begun(stretch)) => (stretch, control::perform(installation, &Call::get(&["quota"]).with_query(&owner))?),
        None => {
            let quota = step(&first)?;
            (Stretch { start: quota.start, used: quota.used }, quota)
        }
    };
    let count = || {
        let mut progress = ProgressLine::new();
        let counted = count_journals(&views, &quota, stretch.start, &mut progress)?;
        let second = QuotaRecount { stretch: Some(stretch), counted, ..first.clone() };
        let deadline = Instant::now() + SHIPPING_TIMEOUT;
        loop {
            match step(&second) {
                Err(error) if error.is_temporary() && Instant::now() < deadline => {
                    progress.show(|| "waiting for the records of all gateways".to_owned());
                    thread::sleep(POLL);
                }
                recounted => break recounted,
            }
        }
    };
    let go_on = || {
        let Stretch { start, used } = stretch;
        format!("to go on with this recount, add `--begun {start}/{used}`")
    };
    let recounted = count().map_err(|error: CliError| error.context(go_on()))?;
    Ok(show::record(&recounted, format)?)
}

/// The units in these journals from before a time, as soon as they have all of them; none without journals.
fn count_journals(
    views: &[AuditView],
    quota: &Quota,
    start: Micros,
    progress: &mut ProgressLine,
) -> Result<Option<u64>, CliError> {
    if views.is_empty() {
        return Ok(None);
    }
    let recorded = start.after(management::UNTIL_RECORDED);
    while clock::now() < recorded {
        progress.show(|| "waiting for the last records of before".to_owned());
        thread::sleep(POLL);
    }
    let subject = quota.subject.parse().context("the gateway is of another version: it names no subject")?;
    let spent = SpentBy { subject, from: quota.budget.per.around(start).start, before: start };
    let (units, _) = management::count_units(views, spent, clock::now())?;
    Ok(Some(units))
}

/// The quota of these arguments.
fn own_budget(units: u64, per: Per) -> Result<OwnBudget, CliError> {
    let per = match per {
        Per::Day => Period::Day,
        Per::Month => Period::Month,
    };
    OwnBudget::new(units, per).map_err(|error| CliError::new(ExitStatus::Usage, anyhow!("--units: {error}")))
}

/// `2000000 units a month for the organization`, of a quota in force.
pub(super) fn quota_text(Budget { units, per, of }: &Budget) -> String {
    let whose = match of {
        Spender::Key => "key",
        Spender::User => "user",
        Spender::Org => "organization",
    };
    format!("{units} units a {} for the {whose}", per.as_str())
}

impl Shown for Quota {
    fn fields(&self) -> Fields {
        vec![
            ("subject", self.subject.clone()),
            ("quota", quota_text(&self.budget)),
            ("spent", self.used.to_string()),
            ("left", self.remaining.to_string()),
            ("since", seconds(self.start)),
            ("until", seconds(self.end)),
        ]
    }
}
