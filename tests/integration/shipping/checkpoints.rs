//! Checkpoints in PostgreSQL: each once, whatever is delivered again, and good for `audit verify
//! --checkpoint` from there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use journal::audit::Settings;

use super::postgresql::{ship_all, sink, sink_with};
use crate::journal::checkpoints::{assert_proven, lines, signed};
use crate::journal::support::{keep_plain, write_uses};
use crate::support::{Postgresql, Setup, Upstream, until};

/// The checkpoints that are lines of a journal, whose segments are plain, by size.
pub fn checkpoints_of(settings: &Settings) -> BTreeMap<u64, String> {
    let seals = lines(settings).into_iter().filter(|line| line.starts_with(r#"{"e":"seal","segment":0,"#));
    let read = |line: String| {
        let seal: serde_json::Value = serde_json::from_str(&line).unwrap();
        (seal["lines"].as_u64().unwrap(), seal["checkpoint"].as_str().unwrap().to_owned())
    };
    seals.map(read).collect()
}

/// The checkpoints of a gateway in the database, by size.
fn rows(server: &Postgresql, gateway: &str) -> BTreeMap<u64, String> {
    let rows = server.sql(&format!(
        "SELECT json_build_object('size', size, 'note', note) FROM keygate.checkpoints
         WHERE gateway = '{gateway}' AND journal IN (SELECT journal FROM keygate.journals)
             AND note LIKE origin || E'\n' || size || E'\n' || root || E'\n\n%'
             AND abs(extract(epoch FROM received_at - time)) < 600"
    ));
    let read = |row: &String| {
        let row: serde_json::Value = serde_json::from_str(row).unwrap();
        (row["size"].as_u64().unwrap(), row["note"].as_str().unwrap().to_owned())
    };
    rows.iter().map(read).collect()
}

fn count(server: &Postgresql) -> usize {
    server.sql("SELECT count(*) FROM keygate.checkpoints")[0].parse().unwrap()
}

#[test]
fn each_checkpoint_is_in_the_database_once() {
    let (dir, other, server) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Postgresql::start());
    let (settings, key) = signed(dir.path());
    keep_plain(&settings);
    for _ in 0..3 {
        write_uses(&settings, 20);
        ship_all(&settings, &sink(&server));
    }
    let written = checkpoints_of(&settings);
    assert!(written.len() >= 3 && rows(&server, "gw-1") == written, "{written:?}");
    // The position is lost, as with a database that was restored from a backup.
    server.sql("DELETE FROM keygate.journals");
    write_uses(&settings, 20);
    ship_all(&settings, &sink(&server));
    let written = checkpoints_of(&settings);
    assert_eq!(rows(&server, "gw-1"), written);
    assert_eq!(count(&server), written.len());
    let (size, note) = written.last_key_value().unwrap();
    assert_eq!(assert_proven(&settings, note, &key).covered, *size);
    // Another gateway, with a key of its own.
    let (theirs, _) = signed(other.path());
    let theirs = Settings { gateway: "gw-2".into(), ..theirs };
    keep_plain(&theirs);
    write_uses(&theirs, 5);
    ship_all(&theirs, &sink(&server));
    assert_eq!(rows(&server, "gw-2"), checkpoints_of(&theirs));
    assert_eq!(rows(&server, "gw-1"), written);
}

#[test]
fn second_root_of_one_size_is_a_second_row() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let (settings, _) = signed(dir.path());
    keep_plain(&settings);
    write_uses(&settings, 5);
    ship_all(&settings, &sink(&server));
    let before = count(&server);
    server.sql("UPDATE keygate.checkpoints SET root = 'another'; DELETE FROM keygate.journals");
    ship_all(&settings, &sink(&server));
    let of_two_pasts =
        "SELECT origin, size FROM keygate.checkpoints GROUP BY origin, size HAVING count(DISTINCT root) > 1";
    assert_eq!(server.sql(of_two_pasts).len(), before);
}

#[test]
fn last_checkpoint_of_each_day_and_tree_outlives_retention() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let (settings, _) = signed(dir.path());
    write_uses(&settings, 5);
    ship_all(&settings, &sink(&server));
    server.sql(
        "DELETE FROM keygate.checkpoints;
         INSERT INTO keygate.checkpoints (origin, size, root, gateway, journal, time, note, received_at)
         SELECT origin, size, 'root', 'gw-1', gen_random_uuid(), now(), 'note',
                date_trunc('day', now(), 'UTC') - age * interval '1 hour'
         FROM (VALUES ('a', 1, 239), ('a', 2, 230), ('a', 3, 220), ('b', 1, 235), ('a', 4, 26), ('a', 5, 25),
                      ('a', 6, 1)) AS kept (origin, size, age)",
    );
    let day = Duration::from_secs(86_400);
    let left = || server.sql("SELECT origin || size FROM keygate.checkpoints WHERE root = 'root' ORDER BY 1");
    ship_all(&settings, &sink(&server));
    assert_eq!(left().len(), 7, "without retention, all stay");
    // The present day is that of the newest record, and what is in hand keeps its days.
    write_uses(&settings, 1);
    ship_all(&settings, &sink_with(&server.url(), None, Some(day * 5)));
    assert_eq!(left(), ["a3", "a4", "a5", "a6", "b1"]);
    write_uses(&settings, 1);
    ship_all(&settings, &sink_with(&server.url(), None, Some(day)));
    assert_eq!(left(), ["a3", "a5", "a6", "b1"]);
}

/// Runs `audit verify` with a checkpoint on standard input, or in a file.
fn verify(setup: &Setup, file: &str, input: &str) -> (Option<i32>, String) {
    let key = setup.path().join("audit.key.pub");
    let arguments = ["audit", "verify", "--checkpoint", file, "--public-key", key.to_str().unwrap()];
    let output = setup.keygate_reading(&arguments, input);
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

fn assert_verified((code, text): (Option<i32>, String)) {
    assert!(code == Some(0) && text.contains(" of example.org/gw-1: "), "{code:?} {text}");
}

/// As `zstd -dc` prints an object.
fn read_object(path: &Path) -> Option<String> {
    String::from_utf8(zstd::decode_all(File::open(path).ok()?).ok()?).ok()
}

#[test]
fn journal_is_verified_by_a_checkpoint_from_a_database_or_an_object() {
    let (upstream, server) = (Upstream::start(), Postgresql::start());
    let setup = Setup::new(upstream.address, "");
    let ship = format!(
        "path: audit, checkpoints: {{ key_file: audit.key }}, ship: [ {{ name: central, postgresql: {{ url: '{}' }} \
         }}, {{ name: archive, files: {{ path: objects, every: 1s }} }}] }}",
        server.url()
    );
    setup.write(&setup.text().replace("path: audit }", &ship));
    setup.ok(&["audit", "key", "new", "--name", "example.org/gw-1"]);
    setup.key();
    let gateway = setup.start();
    let all = "SELECT note FROM keygate.checkpoints WHERE origin = 'example.org/gw-1' ORDER BY size";
    // As `psql -At` prints them.
    let printed = until("the database has checkpoints", || {
        let rows =
            server.try_sql(all).ok().filter(|rows| rows.iter().filter(|row| row.starts_with('—')).count() > 1)?;
        Some(rows.join("\n") + "\n")
    });
    let (object, lines) = until("an object has a checkpoint", || {
        let paths = fs::read_dir(setup.path().join("objects")).ok()?.map(|entry| entry.unwrap().path());
        let closed = paths.filter(|path| path.extension().is_some_and(|end| end == "zst"));
        let read = closed.filter_map(|path| Some((read_object(&path)?, path)));
        read.map(|(lines, path)| (path, lines)).find(|(_, lines)| lines.contains("{\"checkpoint\":"))
    });
    gateway.stop();
    assert_verified(verify(&setup, "-", &printed));
    assert_verified(verify(&setup, object.to_str().unwrap(), ""));
    assert_verified(verify(&setup, "-", &lines));
    let (code, text) = verify(&setup, "-", &printed.replace("gw-1\n", "gw-2\n"));
    assert_eq!(code, Some(1), "{text}");
    let (code, text) = verify(&setup, "-", "{\"id\":\"x\"}\n");
    assert!(code == Some(1) && text.contains("no line has a checkpoint"), "{text}");
}
