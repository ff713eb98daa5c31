//! The user that the gateway runs as, and the files and directories that this user may open.
//!
//! A command that root runs acts for the owner of the audit journal: what root may open says nothing about the service.
//! Files that root makes before the first start (`sudo keygate …`) could not be opened by a gateway that runs as the
//! owner of their directory.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::anyhow;
use rustix::fs::Access;

use super::{CliError, ExitStatus};
use crate::config::Config;
use platform::passwd::Passwd;

/// Bits of a mode, as those of `others`.
const READ: u32 = 0o4;
const WRITE: u32 = 0o2;
const ENTER: u32 = 0o1;
/// Root's user id: what root owns, others may write to as they are permitted.
const ROOT: u32 = 0;

/// The user that the gateway runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServiceUser {
    uid: u32,
    gid: u32,
    is_this_process: bool,
}

impl ServiceUser {
    /// The user of this process; for root, the owner of the journal's directory, or of the nearest one above that
    /// exists.
    pub(super) fn of(config: &Config) -> Self {
        let own = Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            is_this_process: true,
        };
        match nearest(&config.audit.path) {
            Some((_, metadata)) if own.uid == ROOT && metadata.uid() != ROOT => Self::owner(&metadata),
            _ => own,
        }
    }

    fn owner(metadata: &Metadata) -> Self {
        Self { uid: metadata.uid(), gid: metadata.gid(), is_this_process: false }
    }

    /// Gives a new file to this user.
    pub(super) fn take_over(self, file: &std::fs::File) -> std::io::Result<()> {
        if self.is_this_process {
            return Ok(());
        }
        std::os::unix::fs::fchown(file, Some(self.uid), Some(self.gid))
    }

    /// Checks that a file can be read.
    pub(super) fn can_read(self, path: &Path) -> Result<(), String> {
        let shown = path.display();
        if self.is_this_process {
            return std::fs::File::open(path).map(drop).map_err(|error| format!("{shown}: cannot be read: {error}"));
        }
        let metadata = std::fs::metadata(path).map_err(|error| format!("{shown}: cannot be read: {error}"))?;
        if self.may(&metadata, READ) && self.may_enter_above(path) {
            return Ok(());
        }
        let Self { uid, gid, .. } = self;
        Err(format!(
            "{shown}: cannot be read by the user {uid}, who owns the audit journal; run: chown {uid}:{gid} {shown}"
        ))
    }

    /// Checks that a file can be written, which is created when it is missing.
    pub(super) fn can_append_to(self, path: &Path) -> Result<(), String> {
        let Ok(metadata) = std::fs::metadata(path) else {
            return self.can_create_in(path.parent().unwrap_or(path));
        };
        let allowed = if self.is_this_process {
            rustix::fs::access(path, Access::WRITE_OK).is_ok()
        } else {
            self.may(&metadata, WRITE) && self.may_enter_above(path)
        };
        let refused = || {
            format!(
                "{}: belongs to the user {}, and the user {} cannot write it; correct the owner",
                path.display(),
                metadata.uid(),
                self.uid
            )
        };
        allowed.then_some(()).ok_or_else(refused)
    }

    /// Checks that files can be created in a directory, which is itself created when it is missing.
    pub(super) fn can_create_in(self, directory: &Path) -> Result<(), String> {
        let Some((existing, metadata)) = nearest(directory) else {
            return Err(format!("{}: no directory above it exists", directory.display()));
        };
        let shown = existing.display();
        if !metadata.is_dir() {
            return Err(format!("{}: cannot be made, because {shown} is no directory", directory.display()));
        }
        let allowed = if self.is_this_process {
            rustix::fs::access(existing, Access::WRITE_OK | Access::EXEC_OK).is_ok()
        } else {
            self.may(&metadata, WRITE | ENTER) && self.may_enter_above(existing)
        };
        if allowed {
            return Ok(());
        }
        let owner = metadata.uid();
        let Self { uid, gid, .. } = self;
        // An empty path is the working directory, which exists.
        if existing != directory && !directory.as_os_str().is_empty() {
            let missing = directory.display();
            return Err(format!(
                "{missing}: cannot be made: {shown} belongs to the user {owner}, and the user {uid} cannot write \
                 there; run as root: install -d -m 700 -o {uid} -g {gid} '{missing}'"
            ));
        }
        Err(format!(
            "{shown}: belongs to the user {owner}, and the user {uid} cannot write there; run this as the user that \
             the gateway runs as, or correct the owner"
        ))
    }

    fn may_enter_above(self, path: &Path) -> bool {
        path.ancestors().skip(1).all(|directory| {
            std::fs::metadata(directory).map_or(directory.as_os_str().is_empty(), |found| self.may(&found, ENTER))
        })
    }

    /// Permission by the mode of the file; further groups of the user are not known.
    fn may(self, metadata: &Metadata, wanted: u32) -> bool {
        let shift = if self.uid == metadata.uid() {
            6
        } else if self.gid == metadata.gid() {
            3
        } else {
            0
        };
        (metadata.mode() >> shift) & wanted == wanted
    }
}

/// Checks that the directories of the state and of the journal belong to the user of this process, or to root.
///
/// # Errors
/// One belongs to another user; with the command to use.
pub(super) fn check_owner(config: &Config) -> Result<(), CliError> {
    let state = match &config.state {
        state::Settings::Embedded(settings) => settings.path.parent(),
        state::Settings::Redis(_) => None,
    };
    let user = rustix::process::geteuid().as_raw();
    for directory in state.into_iter().chain([&*config.audit.path]) {
        let Some((directory, metadata)) = nearest(directory) else { continue };
        let owner = metadata.uid();
        if owner != user && owner != ROOT {
            return Err(belongs_to_another(directory, owner));
        }
    }
    Ok(())
}

fn belongs_to_another(directory: &Path, owner: u32) -> CliError {
    let directory = directory.display();
    // As `sudo -u` takes users.
    let owner = Passwd::read().name(owner).map_or_else(|| format!("'#{owner}'"), str::to_owned);
    let message = anyhow!(
        "{directory} belongs to the user {owner}, and a gateway of that user could not open files that you make there; \
         run the command as that user: sudo -u {owner} keygate …"
    );
    CliError::new(ExitStatus::Failed, message)
}

/// The path, or the nearest one above it that exists.
fn nearest(path: &Path) -> Option<(&Path, Metadata)> {
    path.ancestors().find_map(|path| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        std::fs::metadata(path).ok().map(|metadata| (path, metadata))
    })
}
