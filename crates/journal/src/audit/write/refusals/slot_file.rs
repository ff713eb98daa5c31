//! Slot file: the counts of refusals on disk, each in a slot of fixed size that is rewritten with every refusal.
//!
//! - A slot holds the very line that the journal will get, so that recovery needs nothing else. Writing a slot is one
//!   system call into the kernel's page cache, and the file does not grow with the refusals.
//! - A kill cannot tear a slot: it is smaller than a page. A power failure can lose or tear slots, which are not
//!   synced; a torn slot fails its checksum and is ignored.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use parking_lot::{Mutex, MutexGuard};

use super::group::RefusalGroup;
use crate::audit::format::event::UseEvent;
use crate::audit::format::frame::{self, Line as _};
use crate::audit::format::{decode, line};
use crate::files;
use domain::clock::Micros;

/// Name of the file in the journal's directory.
const FILE: &str = "refusals";
/// Bytes of a slot: a page, which is more than the longest line of a refusal, as all text in it is capped.
const SLOT: usize = 4096;
/// Slots of the file at most.
pub(crate) const MAX_SLOTS: u32 = 10_000;
/// Slots that are allocated when the file is opened, so that refusals are counted while the disk is full.
const PREALLOCATED: u32 = 16;

/// The slot file, and the slots that are free.
#[derive(Debug)]
pub(crate) struct SlotFile {
    /// `None` when the file cannot be opened: no refusal is counted then.
    file: Option<File>,
    free: Mutex<FreeSlots>,
}

#[derive(Debug)]
struct FreeSlots {
    /// Slots that were given back. The lowest is given out first, so that the file stays short.
    returned: BinaryHeap<Reverse<u32>>,
    /// The lowest slot that was never given out.
    next: u32,
}

impl SlotFile {
    /// Opens the file in the journal's directory, and returns the groups that a killed gateway left in it.
    pub(crate) fn open(directory: &Path) -> (Self, Vec<Box<RefusalGroup>>) {
        let opened = open_file(directory).and_then(|file| {
            let groups = read_groups(&file)?;
            Ok((file, groups))
        });
        match opened {
            Ok((file, groups)) => {
                let taken: Vec<u32> = groups.iter().map(|group| group.slot).collect();
                let next = taken.iter().max().map_or(0, |last| last + 1);
                let returned = (0..next).filter(|slot| !taken.contains(slot)).map(Reverse).collect();
                let slots = Self { file: Some(file), free: Mutex::new(FreeSlots { returned, next }) };
                slots.preallocate(next);
                (slots, groups)
            }
            Err(error) => {
                tracing::warn!(%error, path = %directory.join(FILE).display(),
                    "refusals cannot be counted, and each is a record of its own; check the disk and the permissions");
                let free = FreeSlots { returned: BinaryHeap::new(), next: MAX_SLOTS };
                (Self { file: None, free: Mutex::new(free) }, Vec::new())
            }
        }
    }

    /// Gives the first slots their room on the disk.
    fn preallocate(&self, from: u32) {
        let Some(file) = &self.file else { return };
        for slot in from..PREALLOCATED {
            if let Err(error) = file.write_all_at(&[0; SLOT], offset(slot)) {
                return tracing::debug!(%error, "cannot allocate slots for counts of refusals; they are written later");
            }
        }
    }

    /// Takes a free slot; `None` when there is none.
    pub(crate) fn acquire(&self) -> Option<u32> {
        let mut free = self.lock_free();
        if let Some(Reverse(slot)) = free.returned.pop() {
            return Some(slot);
        }
        let slot = free.next;
        free.next += u32::from(slot < MAX_SLOTS);
        (slot < MAX_SLOTS).then_some(slot)
    }

    /// Gives a slot back that was never written.
    pub(crate) fn release(&self, slot: u32) {
        self.lock_free().returned.push(Reverse(slot));
    }

    /// Writes a group to its slot. `buffer` is an empty buffer that keeps its capacity.
    pub(crate) fn write(&self, group: &RefusalGroup, buffer: &mut Vec<u8>) -> io::Result<()> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        buffer.clear();
        frame::with_serialized(&group.event, |body| body.write_line(0, buffer));
        if buffer.len() > SLOT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        file.write_all_at(buffer, offset(group.slot))
    }

    /// Empties the slot of a group that is in the journal, and gives it back.
    pub(crate) fn clear(&self, slot: u32) {
        // If this fails, the next start finds the group in the journal and does not write it again.
        let cleared = self.file.as_ref().map_or(Ok(()), |file| file.write_all_at(b"\n", offset(slot)));
        cleared.unwrap_or_else(|error| tracing::debug!(%error, slot, "cannot clear a slot of counted refusals"));
        self.release(slot);
    }

    fn lock_free(&self) -> MutexGuard<'_, FreeSlots> {
        self.free.lock()
    }
}

/// The time of the oldest refusal in the slots of a journal's directory: it is counted, and its record may not be
/// written yet. It reads beside the gateway that writes the slots, and changes nothing.
pub(crate) fn oldest_group(directory: &Path) -> io::Result<Option<Micros>> {
    let Some(file) = files::if_found(File::open(directory.join(FILE)))? else { return Ok(None) };
    Ok(read_groups(&file)?.iter().map(|group| group.first()).min())
}

/// The records of the refusals that are counted in a directory, and are not in its journal yet.
pub(crate) fn read_counted(directory: &Path) -> io::Result<Vec<UseEvent<'static>>> {
    let Some(file) = files::if_found(File::open(directory.join(FILE)))? else { return Ok(Vec::new()) };
    Ok(read_groups(&file)?.into_iter().map(|group| group.event).collect())
}

fn open_file(directory: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(directory.join(FILE))
}

/// Reads the slots that are not empty.
fn read_groups(file: &File) -> io::Result<Vec<Box<RefusalGroup>>> {
    let slots = u32::try_from(file.metadata()?.len().div_ceil(SLOT as u64)).unwrap_or(MAX_SLOTS).min(MAX_SLOTS);
    let mut groups = Vec::new();
    let mut bytes = [0; SLOT];
    for slot in 0..slots {
        let filled = files::fill(&mut bytes, offset(slot), |out, at| file.read_at(out, at))?;
        let event = line::split_lines(&bytes[..filled]).next().and_then(|(_, line)| parse(line));
        groups.extend(event.map(|event| Box::new(RefusalGroup::from_event(event, slot))));
    }
    Ok(groups)
}

fn parse(line: &[u8]) -> Option<UseEvent<'static>> {
    let event = decode::verified_use(line)?.into_owned();
    event.count.is_some().then_some(event)
}

fn offset(slot: u32) -> u64 {
    u64::from(slot) * SLOT as u64
}

#[cfg(test)]
mod tests {
    use super::super::group::tests::refusal;
    use super::*;
    use crate::audit::format::record::Use;

    fn group(slot: u32) -> RefusalGroup {
        let (opening, end) = refusal(1_700_000_000_000_000);
        RefusalGroup::new(&opening, end, slot)
    }

    #[test]
    fn slots_are_read_back_until_they_are_cleared() {
        let directory = tempfile::tempdir().unwrap();
        let (slots, found) = SlotFile::open(directory.path());
        assert!(found.is_empty());
        let mut groups = [group(slots.acquire().unwrap()), group(slots.acquire().unwrap())];
        let mut buffer = Vec::new();
        for group in &mut groups {
            (0..500).for_each(|n| {
                group.add(&refusal(1_700_000_000_000_000 + n).0);
                slots.write(group, &mut buffer).unwrap();
            });
        }
        slots.clear(0);
        drop(slots);
        let (slots, found) = SlotFile::open(directory.path());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].slot, found[0].event.uses(), found[0].event.id), (1, 501, groups[1].event.id));
        assert_eq!([slots.acquire(), slots.acquire()], [Some(0), Some(2)], "the slot that is taken is left out");
    }

    #[test]
    fn longest_line_fits_a_slot() {
        let directory = tempfile::tempdir().unwrap();
        let (slots, _) = SlotFile::open(directory.path());
        let (opening, end) = refusal(u64::MAX / 2);
        let worst = "\"\\".repeat(5000);
        let ids = ["usr_", "org_"].map(|prefix| format!("{prefix}{:032x}", u128::MAX));
        let opening = Use {
            user_agent: Some(worst.as_bytes()),
            action: &worst,
            method: &worst,
            path: &worst,
            user_id: ids[0].parse().ok(),
            org_id: ids[1].parse().ok(),
            ..opening
        };
        let mut group = RefusalGroup::new(&opening, end, 0);
        for n in 0..4_u16 {
            let ip = std::net::Ipv6Addr::new(0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xff00 + n);
            group.add(&Use { ip: Some(ip.into()), ..opening.clone() });
        }
        group.event.count = Some(u64::MAX);
        slots.write(&group, &mut Vec::new()).unwrap();
    }

    #[test]
    fn slots_are_bounded_and_torn_ones_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let (slots, _) = SlotFile::open(directory.path());
        assert_eq!((0..MAX_SLOTS + 5).filter_map(|_| slots.acquire()).count(), MAX_SLOTS as usize);
        slots.write(&group(7), &mut Vec::new()).unwrap();
        slots.file.as_ref().unwrap().write_all_at(b"x", offset(7) + 100).unwrap();
        drop(slots);
        assert!(SlotFile::open(directory.path()).1.is_empty());
    }
}
