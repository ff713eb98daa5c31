//! Space on a volume: how much is free, and space that is allocated in advance; the kind of its file system; read-ahead
//! of a file.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::path::Path;

use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;

/// Size and free space of a volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeSpace {
    /// Size of the volume.
    pub total: u64,
    /// Free for processes without privileges.
    pub free: u64,
}

/// Reads the space on the volume that holds a path.
///
/// # Errors
/// If the path does not exist or cannot be reached.
pub fn volume_space(path: &Path) -> io::Result<VolumeSpace> {
    let found = rustix::fs::statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(VolumeSpace { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
}

/// Kind of a file system, as far as it matters to files that must last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// On a disk of this machine, as far as is known.
    Local,
    /// In memory.
    Memory,
    /// The layer of a container.
    Overlay,
    /// On another machine.
    Network,
}

/// Reads the kind of the file system that holds a path.
///
/// # Errors
/// If the path does not exist or cannot be reached.
pub fn file_system(path: &Path) -> io::Result<FileSystem> {
    let magic = rustix::fs::statfs(path)?.f_type;
    // Numbers of the kernel's `magic.h`, which has 32 bits of each.
    Ok(match magic & 0xffff_ffff {
        // tmpfs, ramfs
        0x0102_1994 | 0x8584_58f6 => FileSystem::Memory,
        0x794c_7630 => FileSystem::Overlay,
        // NFS, SMB, CIFS, SMB2, Ceph, AFS
        0x6969 | 0x517b | 0xff53_4d42 | 0xfe53_4d42 | 0x00c3_6400 | 0x5346_414f => FileSystem::Network,
        _ => FileSystem::Local,
    })
}

/// Allocates blocks for a range of a file, without changing the file's length or content: a later write into the range
/// needs no free space. Returns false when the file system cannot allocate in advance.
///
/// # Errors
/// [`io::ErrorKind::StorageFull`] or [`io::ErrorKind::QuotaExceeded`] when there is not enough space.
pub fn allocate(file: &File, from: u64, length: u64) -> io::Result<bool> {
    loop {
        return match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, from, length) {
            Ok(()) => Ok(true),
            Err(Errno::INTR) => continue,
            // Some file systems and sandboxes say so in other words.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::INVAL) => Ok(false),
            Err(error) => Err(error.into()),
        };
    }
}

/// Bytes of one call that reads ahead: Linux reads no more for it than the read-ahead of the disk, by default these.
const READ_AHEAD: u64 = 128 << 10;

/// Has the system read a whole file into memory in its order, in the background. Returns when all is requested.
///
/// # Errors
/// If the file system cannot read ahead.
pub fn read_ahead(file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut from = 0;
    while from < length {
        rustix::fs::fadvise(file, from, NonZeroU64::new(READ_AHEAD), Advice::WillNeed)?;
        from += READ_AHEAD;
    }
    Ok(())
}

/// True when an error says that there is no room: no free space, a quota that is used up, or a file
/// at its largest size.
pub fn is_out_of_space(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn allocated_space_changes_no_length() {
        let directory = tempfile::tempdir().unwrap();
        let file = File::create(directory.path().join("file")).unwrap();
        if allocate(&file, 0, 1 << 20).unwrap() {
            let metadata = file.metadata().unwrap();
            assert_eq!((metadata.len(), metadata.blocks() * 512 >= 1 << 20), (0, true));
        }
        read_ahead(&file).unwrap();
        assert!(file_system(directory.path()).is_ok());
        let space = volume_space(directory.path()).unwrap();
        assert!(space.free <= space.total && space.total > 0);
    }
}
