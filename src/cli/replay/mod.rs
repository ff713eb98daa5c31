//! `keygate replay`: decides the recorded requests of some days again, by the limits, plans, routes and policies of
//! another configuration, and shows what it would change.
//!
//! It reads the records, and the organizations, users and keys as they are now, and changes nothing. A record has no
//! secret: a key is known by its id.

mod report;
mod virtual_gateway;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use self::report::Report;
use self::virtual_gateway::{Keys, VirtualGateway};
use super::installation::Installation;
use super::key_target::KeyIdParser;
use super::output::seconds;
use super::progress::ProgressLine;
use super::show::Format;
use super::{CliError, ExitStatus, audit, audit_filter, backup, control};
use crate::admission::Routes;
use crate::config::Config;
use domain::clock::{self, Micros};
use domain::counted::Counted;
use domain::key::policy::KeyPolicy;
use domain::key::{KeyDigest, KeyId};
use journal::audit::{AuditView, Filter};
use platform::metrics::Metrics;
use state::bucket::Bucket;
use state::embedded::UsedKey;
use state::{Embedded, Excerpt, Key, State};

/// Margin of the times of records with the embedded state: two requests with one key, which two threads decide in the
/// other order than they arrived in.
const MARGIN: Duration = Duration::from_millis(1);
/// The same on Redis, whose clock decides: the way there, and the difference of the clocks.
const REDIS_MARGIN: Duration = Duration::from_millis(100);

/// Arguments of `keygate replay`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Count requests from this time on: RFC 3339, or a duration before now, such as 48h
    #[arg(long, value_name = "TIME", value_parser = audit_filter::time, default_value = "7d")]
    since: Micros,
    /// Count the requests of this key only: the nine characters after sk_live_
    #[arg(long, value_name = "KEY_ID", value_parser = KeyIdParser)]
    key: Option<KeyId>,
    /// Read this journal. Default: that of the configuration, or the records of all gateways in its PostgreSQL
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    /// Take organizations, users and keys from this file, which `state export` wrote. Default: the state as it is now
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
}

impl Args {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        let config = installation.config()?;
        let until = clock::now();
        let mut excerpt = self.excerpt(installation)?;
        forget_withdrawals(&mut excerpt);
        let org = match self.key {
            Some(key) => Some(excerpt.keys.get(&key).with_context(|| format!("the state has no key {key}"))?.0.org),
            None => None,
        };
        let keys: Keys = excerpt.keys.values().map(used_key).collect();
        let state = control::runtime()?.block_on(State::of_excerpt(config.state.defaults(), excerpt, until));
        let State::Embedded(state) = state.context("the records of the state cannot be taken over")? else {
            unreachable!("an excerpt is in memory")
        };
        let routes = Routes::new(&config.routes, &Metrics::new());
        let margin = if matches!(config.state, state::Settings::Redis(_)) { REDIS_MARGIN } else { MARGIN };
        let gateway = VirtualGateway::new(&state, (&routes, &config.routes), &keys, margin, self.since, self.key);
        // Requests of other keys take slots and budgets within the organization alone.
        let since = warm_up(&state, keys.values(), self.since);
        let filter = Filter { since: Some(since), org, ..Filter::default() };
        let (report, first) = self.replay(&config, gateway, &filter)?;
        let notes = notes(&report, &config, margin, self.since, first);
        if self.format.json {
            report.json([self.since, until], first, &notes)?;
        } else {
            report.show([self.since, until], &notes)?;
        }
        match report.changed() {
            0 => Ok(()),
            changed => {
                let requests = Counted(changed, "request");
                Err(CliError::new(ExitStatus::Pending, anyhow!("{requests} would be decided otherwise")))
            }
        }
    }

    fn excerpt(&self, installation: &Installation) -> Result<Excerpt, CliError> {
        let records = match &self.state {
            Some(file) => backup::read_file(file)?,
            None => backup::read_state(installation)?,
        };
        Ok(records.into_excerpt())
    }

    /// Replays the records. Returns the time of the first one as well.
    fn replay(
        &self,
        config: &Config,
        mut gateway: VirtualGateway<'_>,
        filter: &Filter,
    ) -> Result<(Report, Option<Micros>), CliError> {
        let view = match &self.journal {
            Some(directory) => {
                let unreadable = || format!("{}: cannot be read as a journal", directory.display());
                AuditView::of_directory(directory).with_context(unreadable)?
            }
            None => audit::open(config)?,
        };
        let mut progress = ProgressLine::new();
        let (mut count, mut first) = (0_u64, None);
        let status = view.export(filter, &mut |record| {
            first.get_or_insert(record.time);
            count += 1;
            progress.show(|| format!("replayed {}, up to {}", Counted(count, "record"), seconds(record.time)));
            gateway.add(&record);
            Ok(())
        })?;
        drop(progress);
        audit::note_status(status.as_ref());
        Ok((gateway.finish(), first))
    }
}

/// Has every credential be good for the whole stretch: the refusal of one that was not is in its record, and no
/// configuration changes it. Recorded addresses may be shortened, so they are compared with no networks.
fn forget_withdrawals(excerpt: &mut Excerpt) {
    excerpt.orgs.values_mut().for_each(|org| org.suspended = false);
    for user in excerpt.users.values_mut() {
        // The address of a removed user may be another one's by now.
        user.email = user.id.to_string();
        (user.removed, user.suspended) = (None, None);
    }
    for (key, _) in excerpt.keys.values_mut() {
        key.revoked = None;
        let policy = key.policy.take().map(|policy| *policy).unwrap_or_default();
        key.policy = KeyPolicy { disabled: None, expires: None, networks: Vec::new(), ..policy }.boxed();
    }
}

/// A key by what records say of it.
fn used_key((key, digest): &(Key, KeyDigest)) -> (UsedKey, (KeyId, KeyDigest)) {
    let by = if key.session_quota_key { UsedKey::SessionQuotaKey(key.user) } else { UsedKey::Key(key.id) };
    (by, (key.id, *digest))
}

/// The time from which on records say how full a bucket is at `since`, and what is spent of each budget.
fn warm_up<'a>(state: &Embedded, keys: impl Iterator<Item = &'a (KeyId, KeyDigest)>, since: Micros) -> Micros {
    let starts = keys.filter_map(|(key, _)| state.rate_limit_status(*key, since)).map(|status| {
        let empty = Bucket { level: 0, at: since };
        let filled = since.before(Duration::from_micros(empty.full_in_us(status.quota)));
        status.budget.map_or(filled, |budget| filled.min(budget.start))
    });
    starts.min().unwrap_or(since)
}

/// The limits of what this replay can know.
fn notes(report: &Report, config: &Config, margin: Duration, since: Micros, first: Option<Micros>) -> Vec<String> {
    let mut notes = vec![match first {
        Some(first) if first < since => format!("buckets begin as records from {} on left them", seconds(first)),
        _ => "there are no earlier records: buckets begin full, and budgets with nothing spent".to_owned(),
    }];
    let counted = [
        ("left out, because the state does not know their keys", report.unknown, "request"),
        ("decided as recorded, as it depends on their exact times or on costs of other routes", report.near, "request"),
        ("without records of their own, and decided at the time of the last one", report.folded, "refusal"),
        ("paths that are not recorded whole, and were compared by their beginnings", report.cut, "path"),
        ("admitted while Redis was away, against the share of one gateway", report.provisional, "request"),
        (
            "held no slot, because their gateway was killed and their duration is not known",
            report.unmeasured,
            "request",
        ),
        ("made meanwhile; limits, permissions and policies of keys are those of now", report.changes, "change"),
    ];
    let counted = counted.into_iter().filter(|(_, count, _)| *count > 0);
    notes.extend(counted.map(|(text, count, noun)| format!("{text}: {}", Counted(count, noun))));
    if config.routes.iter().any(|route| route.cost_from.is_some()) {
        notes.push(
            "costs of responses are known where a budget was spent; other requests cost what they reserve".into(),
        );
    }
    if config.routes.iter().any(|route| route.is_public) {
        notes.push("requests without a key have no records; the limits of public routes are left out".into());
    }
    notes.push(
        "not recorded: requests of gateways and times whose records are missing, and how long a request would have \
         taken that was refused; it holds no slot"
            .into(),
    );
    notes.push(format!("times of records are known to {} ms", margin.as_millis()));
    notes
}

#[cfg(test)]
mod tests;
