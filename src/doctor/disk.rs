//! Check of the volumes of the audit journal and the embedded state: free space, kind, and what they share.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::finding::{Findings, rounded};
use super::read_files;
use journal::audit::{self, Durability, OnUnavailable};
use platform::disk::{FileSystem, VolumeSpace, file_system, volume_space};
use state::Settings as State;

/// A directory and its volume.
#[derive(Clone, Debug)]
struct Volume {
    path: PathBuf,
    device: u64,
    space: VolumeSpace,
    kind: FileSystem,
}

/// Checks the volumes.
pub(super) async fn check(environment: &Environment, findings: &mut Findings) {
    let audit = &environment.config.audit;
    let journal = audit.path.clone();
    let state = state_directory(&environment.config.state);
    let (journal, state) = read_files(move || (inspect(&journal), state.map(|path| inspect(&path)))).await;
    match &journal {
        Ok(journal) => {
            judge_space("volume of the journal", journal.space, audit.low_water.bytes(journal.space.total), findings);
            judge_kind("volume of the journal", journal, findings);
        }
        Err(error) => judge_missing("audit.path", error, findings),
    }
    match &state {
        Some(Ok(state)) => judge_kind("volume of the state", state, findings),
        Some(Err(error)) => judge_missing("state.embedded.path", error, findings),
        None => {}
    }
    if let (Ok(journal), Some(Ok(state))) = (&journal, &state) {
        judge_sharing(journal, state, is_bounded(audit), findings);
    }
    judge_durability(audit.durability, audit.on_unavailable, findings);
}

/// The directory of the embedded state.
fn state_directory(state: &State) -> Option<PathBuf> {
    let State::Embedded(embedded) = state else { return None };
    let directory = embedded.path.parent().filter(|directory| !directory.as_os_str().is_empty());
    Some(directory.unwrap_or(Path::new(".")).to_owned())
}

fn inspect(path: &Path) -> io::Result<Volume> {
    let device = std::fs::metadata(path)?.dev();
    Ok(Volume { path: path.to_owned(), device, space: volume_space(path)?, kind: file_system(path)? })
}

/// Returns whether retention bounds the size of the journal.
fn is_bounded(audit: &audit::Settings) -> bool {
    audit.retention_by_volume || audit.retention_size.is_some()
}

fn judge_missing(key: &str, error: &io::Error, findings: &mut Findings) {
    let advice = "the gateway creates it at its start; run this command as the gateway's user, on its machine";
    findings.warning(format!("directory of {key}"), format!("cannot be read: {error}"), advice);
}

fn judge_space(subject: &str, space: VolumeSpace, low_water: u64, findings: &mut Findings) {
    let found =
        format!("{} of {} free, audit.low_water is {}", rounded(space.free), rounded(space.total), rounded(low_water));
    let advice = "make room, give the journal a volume of its own, or bound it with audit.retention";
    if space.free < low_water {
        findings.error(subject, format!("{found}: refusals are only counted"), advice);
    } else if space.free < low_water.saturating_mul(3) / 2 {
        findings.warning(subject, found, advice);
    } else {
        findings.ok(subject, found);
    }
}

fn judge_kind(subject: &str, volume: &Volume, findings: &mut Findings) {
    let path = volume.path.display();
    match volume.kind {
        FileSystem::Memory => {
            let advice = "use a volume on a disk: its content ends with the machine or the container";
            findings.warning(subject, format!("{path} is in memory (tmpfs)"), advice);
        }
        FileSystem::Overlay => {
            let advice = "mount a volume there: the layer of a container ends with it";
            findings.warning(subject, format!("{path} is in the layer of a container (overlay)"), advice);
        }
        FileSystem::Network => {
            let advice = "use a local disk: locks and flushes of network file systems are not reliable, and most do \
                          not allocate in advance, so that a full disk also refuses revocations";
            findings.warning(subject, format!("{path} is on a network file system"), advice);
        }
        FileSystem::Local => {}
    }
}

fn judge_sharing(journal: &Volume, state: &Volume, is_bounded: bool, findings: &mut Findings) {
    let subject = "volumes of journal and state";
    match (journal.device == state.device, is_bounded) {
        (false, _) => findings.ok(subject, "different volumes"),
        (true, true) => {
            let advice =
                "nothing, as retention bounds the journal; a volume of its own keeps other files from filling it";
            findings.note(subject, "the same volume", advice);
        }
        (true, false) => {
            let advice =
                "set audit.retention.size, or give the journal a volume of its own: a full one stops changes, too";
            findings.warning(subject, "the same volume, and nothing bounds the journal", advice);
        }
    }
}

fn judge_durability(durability: Durability, on_unavailable: OnUnavailable, findings: &mut Findings) {
    match durability {
        Durability::Synced => findings.ok("audit.durability", "synced"),
        Durability::Written => {
            let advice = "if every record must survive that, set audit.durability: synced, at the cost of a disk flush \
                          per group of requests";
            findings.note(
                "audit.durability",
                "written: a power failure may lose the records of the last second",
                advice,
            );
        }
    }
    if on_unavailable == OnUnavailable::ServeUnrecorded {
        let advice = "set audit.on_unavailable: refuse, if every request must have an audit record";
        let found = "serve_unrecorded: requests are served without an audit record while the journal fails";
        findings.note("audit.on_unavailable", found, advice);
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity::{self, Error, Note, Warning};
    use super::*;

    fn problems(judge: impl FnOnce(&mut Findings)) -> Vec<Severity> {
        let mut findings = Findings::new("disk");
        judge(&mut findings);
        findings.problems().into_iter().map(|(severity, _)| severity).collect()
    }

    #[test]
    fn free_space_is_judged_by_the_low_water_mark() {
        for (free, expected) in [(99, Some(Error)), (100, Some(Warning)), (149, Some(Warning)), (150, None)] {
            let space = VolumeSpace { total: 1000, free };
            let found = problems(|findings| judge_space("journal", space, 100, findings));
            assert_eq!(found, Vec::from_iter(expected), "{free}");
        }
    }

    #[test]
    fn volumes_are_judged() {
        let volume =
            |device, kind| Volume { path: "/v".into(), device, space: VolumeSpace { total: 1, free: 1 }, kind };
        let local = |device| volume(device, FileSystem::Local);
        for (kind, expected) in [
            (FileSystem::Local, None),
            (FileSystem::Memory, Some(Warning)),
            (FileSystem::Overlay, Some(Warning)),
            (FileSystem::Network, Some(Warning)),
        ] {
            let found = problems(|findings| judge_kind("journal", &volume(1, kind), findings));
            assert_eq!(found, Vec::from_iter(expected));
        }
        for (journal, is_bounded, expected) in
            [(1, true, Some(Note)), (1, false, Some(Warning)), (2, false, None), (2, true, None)]
        {
            let found = problems(|findings| judge_sharing(&local(journal), &local(1), is_bounded, findings));
            assert_eq!(found, Vec::from_iter(expected), "{journal} {is_bounded}");
        }
        let durability = |durability, policy| problems(|findings| judge_durability(durability, policy, findings));
        assert_eq!(durability(Durability::Synced, OnUnavailable::Refuse), []);
        assert_eq!(durability(Durability::Written, OnUnavailable::ServeUnrecorded), [Note, Note]);
    }
}
