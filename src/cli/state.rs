//! `keygate state`: operations on the state as a whole.

use anyhow::anyhow;
use clap::Subcommand;

use super::backup::{self, ExportArgs, ImportArgs, VerifyArgs};
use super::call::Call;
use super::installation::Installation;
use super::output::or_dash;
use super::show::{self, Fields, Shown};
use super::{CliError, ExitStatus, RemoteCommand};
use ::control::management::AcceptedState;
use state::StateId;

/// Accepting a state undoes revocations that it lacks.
const OF_THE_MACHINE: &str =
    "a state is accepted on the machine of a gateway, where it can be looked at; run it there, without --server";

/// Commands of `keygate state`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Write organizations, users, keys by digest, limits, buckets and revocations to a file
    ///
    /// Web sessions are left out. The file opens nothing by itself, but treat it as confidential.
    Export(ExportArgs),
    /// Import a file that `export` wrote, into this or another state
    ///
    /// Missing records are created. Of those that are there, revocations, removals and suspensions are taken over. Each
    /// other difference is a conflict: it is listed and changes nothing, and the exit code is then 4. An old file
    /// brings no revoked key and no removed user back, and fills no bucket. Repeating it changes nothing.
    Import(ImportArgs),
    /// Accept the state as it is, in place of the one that gateways have served
    ///
    /// A gateway that finds no state, another one, or an older one than it has served answers 503 and changes nothing.
    /// After a loss, restore the state from a backup; if what is there is right, this command says so. It gives the
    /// state a new identity. Every gateway that has served the state before serves this one from then on. Revocations
    /// that this state lacks are undone: `keygate state verify --journal` names them.
    Accept,
    /// Compare a file that `export` wrote with the state, or with a later file
    ///
    /// Every record of the first file has to be there, and to be the same: what is missing or differs is listed, and
    /// the exit code is then 1. Of keys that were used since, buckets and Last Used are not compared. Further records
    /// are counted.
    Verify(VerifyArgs),
}

impl RemoteCommand<Command> {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        match &self.command {
            Command::Export(args) => backup::export(installation, args, self.format.json),
            Command::Import(args) => backup::import(installation, args, self.format.json),
            Command::Accept if installation.remote().is_some() => {
                Err(CliError::new(ExitStatus::Usage, anyhow!(OF_THE_MACHINE)))
            }
            Command::Accept => {
                show::perform::<AcceptedState>(installation, &Call::post(&["state", "accept"]), self.format)
            }
            Command::Verify(args) => backup::verify(installation, args, self.format.json),
        }
    }
}

impl Shown for AcceptedState {
    fn fields(&self) -> Fields {
        let replaces: Vec<&str> = self.replaces.iter().map(StateId::as_str).collect();
        vec![("accepted as", self.id.to_string()), ("in place of", or_dash(Some(replaces.join(", "))))]
    }
}
