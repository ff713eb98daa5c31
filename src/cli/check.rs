//! `keygate check`: reports all errors of the configuration file, and what `keygate serve` could not open.
//!
//! Certificates and secrets are read with the configuration. The rest is looked at here, without creating or locking
//! anything: the key that signs checkpoints, the directories of the data, and the file of the access log.

use std::path::Path;

use anyhow::anyhow;

use super::installation::Installation;
use super::service_user::ServiceUser;
use super::{CliError, ExitStatus, output};
use crate::admission::RouteSettings;
use crate::config::Config;
use crate::doctor::{self, Check};
use platform::outbound::delivery::in_full;
use platform::telemetry::access_log::SinkSettings;

pub(super) fn run(installation: &Installation) -> Result<(), CliError> {
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
