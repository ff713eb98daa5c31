//! Owner of the directories that a command without a gateway writes to. Files that root makes there before the first
//! start (`sudo keygate …`) could not be opened by the gateway, which runs as the owner.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::anyhow;

use super::{CliError, ExitStatus};
use crate::config::Config;

/// Users with their ids: `name:x:uid:…` in each line.
const USERS: &str = "/etc/passwd";
/// Root's user id: what root owns, others may write to as they are permitted.
const ROOT: u32 = 0;

/// Checks that the directories of the state and of the journal belong to the user of this process, or to root.
///
/// # Errors
/// One belongs to another user; with the command to use.
pub(super) fn check(config: &Config) -> Result<(), CliError> {
    let state = match &config.state {
        state::Settings::Embedded(settings) => settings.path.parent(),
        state::Settings::Redis(_) => None,
    };
    let user = rustix::process::geteuid().as_raw();
    for directory in state.into_iter().chain([&*config.audit.path]) {
        let Some((directory, owner)) = existing(directory) else { continue };
        if owner != user && owner != ROOT {
            return Err(refused(directory, &name_of(owner)));
        }
    }
    Ok(())
}

/// The directory, or the nearest one above it that exists, with its owner; none for one that is relative to nothing.
fn existing(directory: &Path) -> Option<(&Path, u32)> {
    for directory in directory.ancestors() {
        let path = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        match fs::metadata(path) {
            Ok(metadata) => return Some((path, metadata.uid())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Opening the files says what is wrong.
            Err(_) => return None,
        }
    }
    None
}

fn refused(directory: &Path, owner: &str) -> CliError {
    let directory = directory.display();
    let message = anyhow!(
        "{directory} belongs to the user {owner}, and a gateway of that user could not open files that you make there; \
         run the command as that user: sudo -u {owner} keygate …"
    );
    CliError::new(ExitStatus::Failed, message)
}

/// The name of a user as `sudo -u` takes it; of one without a name, the id.
fn name_of(uid: u32) -> String {
    let users = fs::read_to_string(USERS).unwrap_or_default();
    let mut named = users.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    named.next().unwrap_or_else(|| format!("'#{uid}'"))
}
