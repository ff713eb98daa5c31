//! The tables of the sink in PostgreSQL: their version and its migration.

use std::path::Path;
use std::time::Duration;

use journal::shipping::{self, SinkState};

use super::postgresql::{count, ship_all, sink, start};
use crate::journal::support::{open_journal, settings, write_uses};
use crate::support::{Postgresql, eventually};

#[test]
fn newer_schema_is_left_alone() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let settings = settings(dir.path());
    write_uses(&settings, 1);
    ship_all(&settings, &sink(&server));
    server.sql("INSERT INTO keygate.migrations (version) VALUES (1000)");
    let journal = open_journal(&settings);
    let shippers = start(&journal, &sink(&server));
    eventually("the sink fails", || shippers.reports()[0].state == SinkState::Failing);
    let error = shippers.reports()[0].error.clone().unwrap();
    assert!(error.contains("version 1000") && error.contains("newer program"), "{error}");
    shippers.finish(Duration::ZERO);
}

#[test]
fn schema_is_migrated_once_by_many_gateways() {
    let server = Postgresql::start();
    let dirs: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    let ship = |dir: &Path| {
        let settings = settings(dir);
        write_uses(&settings, 10);
        ship_all(&settings, &sink(&server));
    };
    std::thread::scope(|scope| dirs.iter().for_each(|dir| drop(scope.spawn(|| ship(dir.path())))));
    let migrations = shipping::SCHEMA.migrations.len().to_string();
    assert_eq!(server.sql("SELECT count(*) FROM keygate.migrations"), [migrations]);
    // Where they were in each other's way, the next one goes on.
    dirs.iter().for_each(|dir| ship_all(&settings(dir.path()), &sink(&server)));
    assert_eq!(count(&server), 40);
}
