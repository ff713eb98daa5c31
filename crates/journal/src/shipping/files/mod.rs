//! Files as a sink: closed, compressed objects of JSON lines in a directory, for log collectors.
//!
//! - An object `GATEWAY-JOURNAL-LINE.jsonl.zst` is complete when it has its name, and never changes: it was written
//!   under a hidden name, and renamed. `LINE` is the number of the journal's line before its first record: names are in
//!   the order of the journal.
//! - A checkpoint is a line of its own, after the records of its batch.
//! - It is closed when it is large or old enough; see [`FilesSettings`]. Until then its records are in the
//!   hidden file, on the disk.
//! - The position is in the files themselves, in blocks that decompressors skip ([`block`]): a crash at any
//!   moment repeats no record and loses none. A block that a power failure has torn is cut off, and its records
//!   are delivered again.

mod block;
mod object;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use uuid::Uuid;

use super::batch::Batch;
use super::ndjson;
use super::settings::FilesSettings;
use crate::audit::StreamPosition;
use crate::files;

use object::OpenObject;

/// Characters of a gateway's name that are encoded in names of files.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'.').remove(b'-');
/// Time between two looks whether an object is old enough, while there are no records.
const LOOK: Duration = Duration::from_secs(5);

/// Directory of objects.
#[derive(Debug)]
pub(super) struct ObjectDirectory {
    settings: FilesSettings,
    open: Option<OpenObject>,
    /// `GATEWAY-JOURNAL`, once connected.
    stem: String,
}

impl ObjectDirectory {
    pub(super) fn new(settings: FilesSettings) -> Self {
        Self { settings, open: None, stem: String::new() }
    }

    pub(super) fn target(&self) -> String {
        self.settings.path.display().to_string()
    }

    /// Time after which [`ObjectDirectory::deliver`] is to be called also without records.
    pub(super) fn heartbeat(&self) -> Duration {
        LOOK.min(self.settings.every)
    }

    /// Opens the hidden file of a journal, and returns the position in it; `None` when there is none yet.
    pub(super) fn connect(&mut self, journal: Uuid, gateway: &str) -> io::Result<Option<StreamPosition>> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.settings.path)?;
        self.stem = format!("{}-{}", utf8_percent_encode(gateway, ENCODED), journal.simple());
        let open = self.hidden("open");
        let next = self.hidden("next");
        // The object was closed, and a crash came before its successor got its name.
        if next.exists() && !open.exists() {
            fs::rename(&next, &open)?;
        }
        self.open = OpenObject::reopen(&open)?;
        Ok(self.open.as_ref().map(OpenObject::position))
    }

    /// Appends the records and checkpoints of a batch to the open object; they are on the disk when this returns.
    /// Closes objects that are large or old enough.
    pub(super) fn deliver(&mut self, batch: &Batch) -> io::Result<()> {
        self.close_if_due()?;
        if self.open.is_none() {
            self.open = Some(OpenObject::create(&self.hidden("open"), batch.from)?);
            files::sync_directory(&self.settings.path)?;
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        if batch.to != open.position() {
            let lines = [ndjson::lines(&batch.records), ndjson::checkpoint_lines(&batch.checkpoints)].concat();
            open.append(batch.from.line, &lines, batch.to)?;
        }
        self.close_if_due()
    }

    pub(super) fn disconnect(&mut self) {
        self.open = None;
    }

    fn close_if_due(&mut self) -> io::Result<()> {
        let is_due = |open: &OpenObject| open.is_due(self.settings.size, self.settings.every);
        match self.open.take_if(|open| is_due(open)) {
            Some(open) => self.close(&open),
            None => Ok(()),
        }
    }

    /// Gives the open object its name. Its successor is there before, with the position: at every
    /// moment one of them has it.
    fn close(&mut self, object: &OpenObject) -> io::Result<()> {
        let open = self.hidden("open");
        let next = self.hidden("next");
        let successor = OpenObject::create(&next, object.position())?;
        let name = format!("{}-{:012}.jsonl.zst", self.stem, object.first_line());
        fs::rename(&open, self.settings.path.join(name))?;
        fs::rename(&next, &open)?;
        files::sync_directory(&self.settings.path)?;
        self.open = Some(successor);
        Ok(())
    }

    fn hidden(&self, extension: &str) -> PathBuf {
        self.settings.path.join(format!(".{}.{extension}", self.stem))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::fs::File;
    use std::path::Path;

    use super::*;
    use crate::audit::Record;
    use domain::clock::Micros;

    const JOURNAL: Uuid = Uuid::from_u128(7);

    fn record(number: u128) -> Record {
        let text = format!(
            r#"{{"id":"{}","time":"2026-11-22T20:00:00.000000Z","key_id":null,"user_id":null,"org_id":null,
            "auth_method":"api-key","ip":null,"user_agent":null,"action":"a","method":"GET","path":"/",
            "outcome":"completed",
            "status":200,"duration_us":1,"request_bytes":0,"response_bytes":1,"gateway":"gw/1"}}"#,
            Uuid::from_u128(number)
        );
        serde_json::from_str(&text).unwrap()
    }

    fn position(line: u64) -> StreamPosition {
        StreamPosition { line, offset: line * 100, segment: 1, ..StreamPosition::START }
    }

    fn batch(from: u64, to: u64) -> Batch {
        Batch {
            journal: JOURNAL,
            gateway: "gw/1".into(),
            records: (from + 1..=to).map(|line| record(u128::from(line))).collect(),
            checkpoints: Vec::new(),
            from: position(from),
            to: position(to),
            complete_until: Micros(0),
        }
    }

    fn sink(directory: &Path, size: u64) -> ObjectDirectory {
        let settings = FilesSettings { path: directory.to_owned(), size, every: Duration::from_secs(3600) };
        ObjectDirectory::new(settings)
    }

    /// Names of the objects, and the hidden files, in order.
    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.collect();
        names.sort();
        names
    }

    /// The ids in all files: first in the objects by their names, then in the open one.
    fn ids(directory: &Path) -> Vec<u128> {
        let (hidden, closed): (Vec<_>, Vec<_>) = names(directory).into_iter().partition(|name| name.starts_with('.'));
        let mut ids = Vec::new();
        for name in closed.iter().chain(hidden.iter().filter(|name| name.ends_with(".open"))) {
            let lines = zstd::decode_all(File::open(directory.join(name)).unwrap()).unwrap();
            let records = serde_json::Deserializer::from_slice(&lines).into_iter::<Record>();
            ids.extend(records.map(|record| record.unwrap().id.as_u128()));
        }
        ids
    }

    #[test]
    fn objects_are_closed_by_size_and_named_by_gateway_and_line() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = sink(directory.path(), 1);
        assert_eq!(files.connect(JOURNAL, "gw/1").unwrap(), None);
        files.deliver(&batch(0, 3)).unwrap();
        files.deliver(&batch(3, 5)).unwrap();
        let stem = format!("gw%2F1-{}", JOURNAL.simple());
        let expected =
            [".S.open", "S-000000000000.jsonl.zst", "S-000000000003.jsonl.zst"].map(|name| name.replace('S', &stem));
        assert_eq!(names(directory.path()), expected);
        assert_eq!(ids(directory.path()), [1, 2, 3, 4, 5]);
        assert_eq!(files.connect(JOURNAL, "gw/1").unwrap(), Some(position(5)));
    }

    #[test]
    fn object_is_closed_when_it_is_old_and_never_when_it_is_empty() {
        let directory = tempfile::tempdir().unwrap();
        let settings = FilesSettings { path: directory.path().to_owned(), size: 1 << 30, every: Duration::ZERO };
        let mut files = ObjectDirectory::new(settings);
        files.connect(JOURNAL, "g").unwrap();
        let quiet = Batch { records: Vec::new(), ..batch(0, 0) };
        files.deliver(&quiet).unwrap();
        files.deliver(&quiet).unwrap();
        assert_eq!(names(directory.path()).len(), 1, "only the hidden one");
        files.deliver(&batch(0, 1)).unwrap();
        files.deliver(&quiet).unwrap();
        assert_eq!(names(directory.path()).len(), 2);
        // Lines without records move the position, and nothing else.
        files.deliver(&Batch { records: Vec::new(), ..batch(1, 9) }).unwrap();
        assert_eq!((names(directory.path()).len(), files.connect(JOURNAL, "g").unwrap()), (2, Some(position(9))));
    }

    #[test]
    fn rest_of_a_torn_block_does_not_stay_behind_a_shorter_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = sink(directory.path(), 1 << 30);
        files.connect(JOURNAL, "g").unwrap();
        files.deliver(&batch(0, 1)).unwrap();
        files.deliver(&batch(1, 500)).unwrap();
        let open = files.hidden("open");
        let length = fs::metadata(&open).unwrap().len();
        File::options().write(true).open(&open).unwrap().set_len(length - 1).unwrap();
        assert_eq!(files.connect(JOURNAL, "g").unwrap(), Some(position(1)));
        files.deliver(&batch(1, 2)).unwrap();
        assert_eq!(ids(directory.path()), [1, 2]);
    }

    proptest! {
        /// A crash at any moment: the open file is cut anywhere, or only one of the two renames was made.
        #[test]
        fn crash_repeats_no_record_and_loses_none(
            steps in prop::collection::vec((1..4_u64, prop::option::of(0..400_u64), any::<bool>()), 1..12),
            size in 1..2000_u64,
        ) {
            let directory = tempfile::tempdir().unwrap();
            let mut files = sink(directory.path(), size);
            let mut at = files.connect(JOURNAL, "g").unwrap().map_or(0, |position| position.line);
            let mut written = 0;
            for (count, cut, renamed_once) in steps {
                files.deliver(&batch(at, at + count)).unwrap();
                at += count;
                written = written.max(at);
                files.disconnect();
                let open = files.hidden("open");
                if let Some(cut) = cut {
                    let length = fs::metadata(&open).unwrap().len();
                    File::options().write(true).open(&open).unwrap().set_len(length.saturating_sub(cut)).unwrap();
                } else if renamed_once {
                    fs::rename(&open, files.hidden("next")).unwrap();
                }
                let found = files.connect(JOURNAL, "g").unwrap();
                prop_assert!(cut.is_some() || found == Some(position(at)), "{found:?} of {at}");
                // With nothing left to begin at, the shipper knows the position of the last delivery at most.
                at = found.map_or_else(|| {
                    fs::remove_file(&open).ok();
                    ids(directory.path()).len() as u64
                }, |position| position.line);
            }
            files.deliver(&batch(at, written + 1)).unwrap();
            let expected: Vec<u128> = (1..=u128::from(written) + 1).collect();
            prop_assert_eq!(ids(directory.path()), expected);
        }
    }
}
