//! The tables of the sink in PostgreSQL: their version and its migration.

use std::path::Path;
use std::time::Duration;

use journal::shipping::{self, SinkState};

use super::postgresql::{count, ship_all, sink, start};
use crate::journal::support::{Caller, END, block_on, change_by_token, open_journal, settings, write_uses};
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
    // One that another kept from it goes on.
    dirs.iter().for_each(|dir| ship_all(&settings(dir.path()), &sink(&server)));
    assert_eq!(count(&server), 40);
}

/// Tables of the first version, with a change by the operator, and somebody who may read the view.
#[test]
fn older_tables_get_the_columns_of_changes() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    server.sql(&format!(
        "CREATE SCHEMA keygate;
         CREATE TABLE keygate.migrations (version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
         INSERT INTO keygate.migrations (version) VALUES (1);
         {};
         CREATE TABLE keygate.records_20260101 PARTITION OF keygate.records
             FOR VALUES FROM ('2026-01-01 00:00:00+00') TO ('2026-01-02 00:00:00+00');
         INSERT INTO keygate.records
             (id, time, gateway, user_id, auth_method, action, method, path, provisional, outcome)
         SELECT gen_random_uuid(), '2026-01-01 12:00:00+00', 'gw', 'usr_ada', auth_method, 'key.revoke', 'ADMIN', '-',
             false, 'completed' FROM unnest(ARRAY['admin-socket', 'session']) AS auth_method;
         CREATE ROLE auditor LOGIN;
         GRANT USAGE ON SCHEMA keygate TO auditor;
         GRANT SELECT ON keygate.audit TO auditor",
        shipping::SCHEMA.migrations[0].0
    ));
    let settings = settings(dir.path());
    let journal = open_journal(&settings);
    let change = change_by_token(Caller::random().opening(), "AbcDEF1239".parse().unwrap());
    block_on(journal.begin_change(&change, false)).unwrap().close(END);
    block_on(journal.close());
    drop(journal);
    ship_all(&settings, &sink(&server));
    assert_eq!(count(&server), 3);
    // Changes that users make themselves keep their ids.
    let changes = "SET ROLE auditor; SELECT auth_method, user_id, left(subject, 7), actor, token_id FROM keygate.audit
                   WHERE is_change ORDER BY auth_method";
    let subject = change.subject.unwrap().to_string();
    let by_program = format!("token||{}|token:…|AbcDEF1239", &subject[..7]);
    assert_eq!(server.sql(changes), ["admin-socket||usr_ada||", "session|usr_ada|||", &by_program]);
}
