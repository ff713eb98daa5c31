//! The sink that writes files.

use std::fs::{self, File};
use std::path::PathBuf;

use journal::shipping::{Destination, FilesSettings};

use super::{
    Arrival, LONG, Place, assert_complete, distinct, read_lines, ships_across_an_outage_and_a_restart, start, write,
};
use crate::journal::support::{Caller, block_on, open_journal, settings};

/// A directory behind a symbolic link, which is away when the link leads to a file.
struct Directory {
    parent: tempfile::TempDir,
    size: u64,
}

impl Directory {
    fn new(size: u64) -> Self {
        let place = Self { parent: tempfile::tempdir().unwrap(), size };
        fs::create_dir(place.at("objects")).unwrap();
        fs::write(place.at("file"), "").unwrap();
        place.set_away(false);
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.parent.path().join(name)
    }

    /// The closed objects, in the order of their names, and then the open one.
    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.at("objects")).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "zst" || extension == "open"));
        files.sort_by_key(|path| (path.extension().is_some_and(|extension| extension == "open"), path.clone()));
        files
    }
}

impl Place for Directory {
    fn destination(&self) -> Destination {
        Destination::Files(FilesSettings { path: self.at("link"), size: self.size, every: LONG })
    }

    fn set_away(&self, is_away: bool) {
        let target = if is_away { "file" } else { "objects" };
        std::os::unix::fs::symlink(self.at(target), self.at("new")).unwrap();
        fs::rename(self.at("new"), self.at("link")).unwrap();
    }

    fn arrivals(&self) -> Vec<Arrival> {
        // A file that is renamed meanwhile is found by the next look.
        let texts = self.files().into_iter().filter_map(|path| zstd::decode_all(File::open(path).ok()?).ok());
        texts.flat_map(|text| read_lines(&text)).collect()
    }
}

#[test]
fn files_are_complete_across_an_outage_and_a_restart() {
    let place = Directory::new(1);
    ships_across_an_outage_and_a_restart(&place);
    let received = place.received();
    assert_eq!(distinct(&received).len(), received.len(), "no record is in two objects");
    let names: Vec<String> =
        place.files().iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert!(
        names.len() > 3 && names[0].starts_with("gw-1-") && names[0].ends_with("-000000000000.jsonl.zst"),
        "{names:?}"
    );
}

#[test]
fn records_of_an_open_object_survive_a_restart() {
    let place = Directory::new(1 << 30);
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path());
    for count in [20, 40] {
        let journal = open_journal(&settings);
        let shippers = start(&journal, &place);
        write(&journal, Caller::random(), 20);
        block_on(journal.close());
        shippers.finish(LONG);
        assert_eq!((place.files().len(), place.received().len()), (1, count));
    }
    assert_complete(&settings, &place);
}
