//! `keygate apply`: creates, changes, revokes and removes organizations, users, permissions, keys and limits from a
//! file, after it has shown a plan.
//!
//! The gateway plans, by a dry run of its own operations, and applies: every change is an operation of management, as
//! those of the other commands. This reads the file, sends it part by part, prints the plan, and asks.

mod file;
mod parts;

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;

use anyhow::anyhow;
use serde::Serialize;
use serde_json::json;

use self::parts::{Part, cut};
use super::answer::Answer;
use super::call::Call;
use super::control::{self, Server};
use super::installation::Installation;
use super::output::Escaped;
use super::progress::ProgressLine;
use super::remote::RemoteArgs;
use super::show::Format;
use super::{CliError, ExitStatus, output};
use ::control::management::{Action, Application, Document, PlanStep};
use domain::counted::Counted;

/// Arguments of `keygate apply`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// File with organizations, users, keys and limits, as YAML or JSON; `-` for standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Show the plan and change nothing; exit code 3 when there is something to change
    #[arg(long)]
    dry_run: bool,
    /// Apply the plan without asking
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

impl Args {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        let document = file::read(&self.file).map_err(|error| CliError::new(ExitStatus::Usage, error))?;
        control::with_server(installation, async |server| self.apply(server, document).await)
    }

    async fn apply(&self, server: &mut Server<'_>, document: Document) -> Result<(), CliError> {
        let mut planned: Vec<(Part, Vec<PlanStep>)> = Vec::new();
        for part in cut(document) {
            let call = call(&part).with_query(&json!({ "dry_run": true }));
            let Application { mut steps, .. } = server.perform(&call).await?;
            // An organization that cannot be made is a conflict in each of its parts.
            steps.retain(|step| !planned.last().is_some_and(|(_, last)| last.contains(step)));
            planned.push((part, steps));
        }
        let steps: Vec<&PlanStep> = planned.iter().flat_map(|(_, steps)| steps).collect();
        self.show(&steps)?;
        let conflicts = steps.iter().filter(|step| step.action == Action::Conflict).count();
        if conflicts > 0 {
            self.show_result(&steps, 0)?;
            let message =
                anyhow!("{} with the state, marked with `!`, so nothing was changed", Counted(conflicts, "conflict"));
            return Err(CliError::new(ExitStatus::Failed, message));
        }
        if self.dry_run || steps.is_empty() {
            self.show_result(&steps, 0)?;
            let pending = || CliError::new(ExitStatus::Pending, anyhow!("{} to apply", Counted(steps.len(), "change")));
            return if steps.is_empty() { Ok(()) } else { Err(pending()) };
        }
        if !self.yes {
            self.confirm(steps.len())?;
        }
        let mut progress = ProgressLine::new();
        let mut applied = 0;
        for (part, planned) in planned.iter().filter(|(_, planned)| !planned.is_empty()) {
            progress.show(|| format!("applied {applied} of {}", Counted(steps.len(), "change")));
            let Application { steps: done, failed } =
                server.perform(&call(&json!({ "organizations": part.organizations }))).await?;
            applied += done.len();
            if let Some(failure) = failed {
                let step = planned.get(done.len()).map(|step| format!("`{}`", Escaped(step)));
                let step = step.unwrap_or_else(|| "a record".to_owned());
                let progress = format!("applied {applied} of {}, then {step}", Counted(steps.len(), "change"));
                return Err(Answer::failure(&failure).context(format!("{progress} failed; run it again")));
            }
        }
        drop(progress);
        self.show_result(&steps, applied)
    }

    /// Shows the plan, for people.
    fn show(&self, steps: &[&PlanStep]) -> io::Result<()> {
        if self.format.json {
            return Ok(());
        }
        steps.iter().try_for_each(output::line)?;
        if steps.is_empty() { output::line("nothing to change") } else { Ok(()) }
    }

    fn show_result(&self, steps: &[&PlanStep], applied: usize) -> Result<(), CliError> {
        if self.format.json {
            output::json(&json!({ "plan": steps, "applied": applied }))?;
        } else if applied > 0 {
            output::line(format_args!("applied {}", Counted(applied, "change")))?;
        }
        Ok(())
    }

    /// Asks on a terminal. Elsewhere the plan is not applied without `--yes`.
    fn confirm(&self, changes: usize) -> Result<(), CliError> {
        let is_answered = self.file.as_os_str() != "-" && io::stdin().is_terminal();
        if !is_answered {
            let message = anyhow!("{} to apply; pass --yes to apply without a question", Counted(changes, "change"));
            return Err(CliError::new(ExitStatus::Usage, message));
        }
        write!(io::stderr(), "Apply {}? Type yes: ", Counted(changes, "change"))?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        let refused = || CliError::new(ExitStatus::Failed, anyhow!("nothing was changed"));
        if answer.trim() == "yes" { Ok(()) } else { Err(refused()) }
    }
}

/// The call that applies a part.
fn call(part: &impl Serialize) -> Call {
    Call::put(&["apply"]).with_body(part)
}
