//! `keygate check`: reports all errors of the configuration file, and what `keygate serve` could not open.
//!
//! With `--state`, also what records name and the file does not have.
//!
//! Certificates and secrets are read with the configuration. The rest is looked at here, without creating or locking
//! anything: the key that signs checkpoints, the directories of the data, and the file of the access log.

use std::path::Path;

use anyhow::anyhow;
use serde_json::json;

use super::call::Call;
use super::installation::Installation;
use super::service_user::ServiceUser;
use super::{CliError, ExitStatus, control, output};
use crate::admission::RouteSettings;
use crate::config::Config;
use crate::doctor::{self, Check, MissingPlan, OddLimits, SmallBurst};
use domain::page::PageLimit;
use platform::outbound::delivery::in_full;
use platform::telemetry::access_log::SinkSettings;

/// Arguments of `keygate check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Also list the keys, users and organizations whose plan the file does not have
    #[arg(long)]
    state: bool,
}

impl Args {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        run(installation)?;
        if self.state { check_state(installation) } else { Ok(()) }
    }
}

/// Checks that the file has the plans that records name, and costs that keys with limits of their own can pay.
fn check_state(installation: &Installation) -> Result<(), CliError> {
    let config = installation.config()?;
    let plans = config.state.defaults().plans;
    let OddLimits { missing, small } = control::with_server(installation, async |server| {
        doctor::find_odd_limits(&plans, config.largest_cost(), async |path, cursor| {
            let query = json!({ "limit": PageLimit::MAX, "cursor": cursor });
            server.perform(&Call::get(path).with_query(&query)).await
        })
        .await
    })?;
    if missing.is_empty() && small.is_empty() {
        return Ok(output::line("state: the file has all plans that records name")?);
    }
    let lines = missing.iter().map(MissingPlan::to_string).chain(small.iter().map(SmallBurst::to_string));
    let lines: Vec<String> = lines.collect();
    Err(CliError::new(ExitStatus::Configuration, anyhow!(lines.join("\n"))))
}

fn run(installation: &Installation) -> Result<(), CliError> {
    let config = installation.config()?;
    config.warnings().iter().for_each(output::note);
    doctor::warnings(&config, &[Check::Certificates], false)?.iter().for_each(output::note);
    if let Some(public) = describe_public(&config.routes) {
        output::note(public);
    }
    let problems = inaccessible(&config);
    if !problems.is_empty() {
        return Err(CliError::new(ExitStatus::Configuration, anyhow!(problems.join("\n"))));
    }
    Ok(output::line(format_args!("{}: ok", installation.file().display()))?)
}

/// A sentence that lists the routes without keys, if there are any.
fn describe_public(routes: &[RouteSettings]) -> Option<String> {
    let public: Vec<String> = routes.iter().filter(|route| route.is_public).map(RouteSettings::describe).collect();
    (!public.is_empty()).then(|| format!("requests to these routes need no API key: {}", public.join("; ")))
}

/// Problems of files and directories that the gateway could not open, one line each.
fn inaccessible(config: &Config) -> Vec<String> {
    let user = ServiceUser::of(config);
    let mut problems = Vec::new();
    let mut note = |setting: &str, problem: Result<(), String>| {
        problems.extend(problem.err().map(|problem| format!("{setting}: {problem}")));
    };
    if let Some(checkpoints) = &config.audit.checkpoints {
        let readable = user.can_read(&checkpoints.key_file);
        let usable = || journal::audit::check_signing_key(&config.audit).map_err(|error| in_full(&error));
        note("audit.checkpoints.key_file", readable.and_then(|()| usable()));
    }
    note("audit.path", user.can_create_in(&config.audit.path));
    if let state::Settings::Embedded(embedded) = &config.state {
        note("state.embedded.path", user.can_create_in(parent(&embedded.path)));
    }
    note("admin.socket", user.can_create_in(parent(&config.admin.socket)));
    if let Some(SinkSettings::File(file)) = config.access_log.as_ref().map(|settings| &settings.sink) {
        note("telemetry.access_log.file", user.can_append_to(file));
    }
    problems
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}
