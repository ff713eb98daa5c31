//! Journals of another version of the format: neither read nor continued, with a message that says what was found.

use std::fs;

use journal::audit::{Filter, Journal, OpenError};
use platform::metrics::Metrics;

use super::support::{assert_intact, new_directory, open_reader, segment_files, write_uses};

/// Writes the version of the last segment's header, with the checksum that the header then has.
fn set_version(path: &std::path::Path, version: &str) {
    let text = fs::read_to_string(path).unwrap();
    let (header, rest) = text.split_once('\n').unwrap();
    let covered = header.rsplit_once(",\"crc\"").unwrap().0.replacen("\"version\":2,", version, 1);
    let crc = crc32fast::hash(covered.as_bytes());
    fs::write(path, format!("{covered},\"crc\":\"{crc:08x}\"}}\n{rest}")).unwrap();
}

#[test]
fn journal_of_another_version_is_refused_and_left_as_it_is() {
    for (version, found) in [("\"version\":1,", "has format version 1,"), ("", "has no format version,")] {
        let (_directory, settings) = new_directory();
        write_uses(&settings, 5);
        let path = &segment_files(&settings)[0];
        let before = fs::read(path).unwrap();
        set_version(path, version);
        let other = fs::read(path).unwrap();
        let opened = Journal::open(settings.clone(), Metrics::new().audit).map(drop).unwrap_err();
        let OpenError::Io { source, .. } = opened else { panic!("{opened}") };
        let reader = open_reader(&settings);
        let read = [
            Err(source),
            reader.list(&Filter::default(), 10, None).map(drop),
            reader.export(&Filter::default(), &mut |_| Ok(())),
            reader.verify().map(drop),
            reader.follow(Filter::default(), 5).map(drop),
        ];
        for error in read.into_iter().map(Result::unwrap_err) {
            let text = error.to_string();
            assert!(text.contains(found) && text.contains("version 2 only; use the keygate that wrote it"), "{text}");
            assert!(text.starts_with(path.to_str().unwrap()), "{text}");
        }
        assert_eq!(fs::read(path).unwrap(), other);
        fs::write(path, before).unwrap();
        write_uses(&settings, 1);
        assert_eq!(assert_intact(&settings).records, 6);
    }
}

/// Lines that another process has written since a hand-over, in another version, are left to a keygate of that one.
#[test]
fn spool_of_another_version_is_refused() {
    let (_directory, settings) = new_directory();
    write_uses(&settings, 1);
    let spool = settings.path.join("predecessor-0000000001-0");
    fs::write(&spool, "{\"version\":1,\"open\":[]}\n").unwrap();
    let opened = Journal::open(settings.clone(), Metrics::new().audit).map(drop).unwrap_err();
    let OpenError::Io { source, .. } = opened else { panic!("{opened}") };
    assert!(source.to_string().contains("predecessor-0000000001-0 has format version 1,"), "{source}");
    fs::write(&spool, "{\"version\":2,\"open\":[]}\n").unwrap();
    write_uses(&settings, 1);
    assert!(!spool.exists());
    assert_eq!(assert_intact(&settings).records, 2);
}
