//! `keygate apply`: creates, changes, revokes and removes organizations, users, permissions, keys and limits from a
//! file, after it has shown a plan.
//!
//! Every change is an operation of management, as of the other commands: authorized, audited, through the running
//! gateway or on the stores.

mod document;
mod flaws;
mod plan;
mod step;
mod org_policy_step;
mod user_step;
mod policy_step;
mod rule_step;
mod org_users;
mod present;

use std::fs::File;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use serde::de::IgnoredAny;
use serde_json::json;

use self::document::Document;
use self::plan::plan;
use self::present::Present;
use self::step::{Action, Step};
use super::control::{self, Server};
use super::installation::Installation;
use super::output::Escaped;
use super::progress::ProgressLine;
use super::remote::RemoteArgs;
use super::show::Format;
use super::{CliError, ExitStatus, output};
use domain::counted::Counted;

/// Bytes of a file at most: some two hundred thousand keys with their users.
const MAX_FILE: u64 = 64 << 20;

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
        let document = read_document(&self.file).map_err(|error| CliError::new(ExitStatus::Usage, error))?;
        control::with_server(installation, async |server| self.apply(server, &document).await)
    }

    async fn apply(&self, server: &mut Server<'_>, document: &Document) -> Result<(), CliError> {
        let steps = plan(document, &Present::read(server, document).await?);
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
        for (number, step) in steps.iter().enumerate() {
            progress.show(|| format!("applied {number} of {}", Counted(steps.len(), "change")));
            if let Err((done, error)) = perform(server, step).await {
                return Err(error.context(format!("{}; run it again", progress_text(number, steps.len(), step, done))));
            }
        }
        drop(progress);
        self.show_result(&steps, steps.len())
    }

    /// Shows the plan, for people.
    fn show(&self, steps: &[Step]) -> io::Result<()> {
        if self.format.json {
            return Ok(());
        }
        steps.iter().try_for_each(output::line)?;
        if steps.is_empty() { output::line("nothing to change") } else { Ok(()) }
    }

    fn show_result(&self, steps: &[Step], applied: usize) -> Result<(), CliError> {
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

/// Reads a file; `-` is standard input. It is refused whole when anything in it is wrong.
fn read_document(path: &Path) -> anyhow::Result<Document> {
    let mut text = String::new();
    let name = path.display();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(MAX_FILE + 1).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text))
    };
    let length = read.with_context(|| format!("{name}: cannot be read"))?;
    if length as u64 > MAX_FILE {
        bail!("{name}: is larger than {} MiB; split it", MAX_FILE >> 20);
    }
    let (mut document, outline) = Document::parse(&text).map_err(|error| anyhow!("{name}: {}", Escaped(error)))?;
    let flaws = flaws::find(&document, &outline);
    let lines = flaws.iter().map(|flaw| format!("{name}:{}:{}: {}", flaw.at.line, flaw.at.column, flaw.what));
    document.normalize();
    if flaws.is_empty() { Ok(document) } else { Err(anyhow!("{}", lines.collect::<Vec<_>>().join("\n"))) }
}

/// Performs the calls of a step; after an error, with the number of those that were done.
async fn perform(server: &mut Server<'_>, step: &Step) -> Result<(), (usize, CliError)> {
    for (done, call) in step.calls.iter().enumerate() {
        server.perform::<IgnoredAny>(call).await.map_err(|error| (done, error))?;
    }
    Ok(())
}

/// Text of the progress of a plan when a step failed after `done` of its operations.
fn progress_text(number: usize, all: usize, step: &Step, done: usize) -> String {
    let part = if done > 0 { format!(", after its first {}", Counted(done, "operation")) } else { String::new() };
    format!("applied {number} of {}, then `{}` failed{part}", Counted(all, "change"), Escaped(step))
}
