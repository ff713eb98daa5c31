//! A copy of a SQLite file to PostgreSQL: complete with its history, so that cursors go on; empty targets
//! only; all or nothing.

use std::cell::Cell;
use std::path::Path;
use std::process::{Command, Output};

use http::Method;
use query_store::store::StoreStats;
use query_store::store::copy::copy;
use query_store::{self, StoreSettings};
use tokio::sync::Notify;

use super::support::{Engine, Fixture, Home, NOW, cursor_key, postgresql_settings, runtime};

/// A service on SQLite with more rows than a batch, edits, deletions, and a cursor in use.
async fn source() -> (Fixture, String) {
    let mut fixture = Fixture::with(Engine::Sqlite, |settings| settings.cursor.keys = vec![cursor_key(1)]);
    let other = super::support::caller();
    query_store::seed(&fixture.service, other, 20, NOW).await.unwrap();
    fixture = fixture.seeded(2500).await;
    let first = fixture.get("/api/queries?limit=3").await;
    for (number, query) in fixture.get("/api/queries?limit=20").await.items().iter().enumerate() {
        let target = format!("/api/queries/{}", query["id"].as_str().unwrap());
        let body = r#"{"name":"edited: \\ ü","sql":"select 'a\tb\nc\\d'"}"#;
        let method = if number % 2 == 0 { Method::PUT } else { Method::DELETE };
        assert!(fixture.write(method, &target, body).await.status.is_success());
    }
    (fixture, first.cursor().unwrap())
}

fn query_store_copy(config: &Path, file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_query-store"));
    command.args(["copy", "--from", "sqlite", "--to", "postgresql", "--config"]).arg(config).arg("--file").arg(file);
    command.output().unwrap()
}

#[test]
fn copy_has_all_content_and_its_cursors_go_on() {
    runtime().block_on(async {
        let (source, cursor) = source().await;
        let target = Fixture::on(Engine::Postgresql);
        let Home::Postgresql { server, database } = &target.home else { unreachable!() };
        let file = source.home.path("data/queries.db");
        let config = source.home.path("query-store.yaml");
        let text = format!(
            "store: {{postgresql: {{url: '{}', deadline: 60s}}}}\ncursor: {{keys: [{{id: 1, secret: '{}'}}]}}\n",
            server.url_of(database),
            cursor_key(1).1.expose()
        );
        std::fs::write(&config, text).unwrap();
        let output = query_store_copy(&config, &file);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("copied 2530 of 2530") && said.contains("the totals agree"), "{said}");

        let (server, database) = (server.clone(), database.clone());
        let target = Fixture { caller: source.caller, ..target };
        assert_eq!(target.collection().await, source.collection().await);
        let next = format!("/api/queries?limit=100&cursor={cursor}");
        let (old, new) = (source.get(&next).await, target.get(&next).await);
        assert_eq!(new.items(), old.items(), "the snapshot of a cursor of the source");
        let stats = target.service.store().stats().await.unwrap();
        assert_eq!((stats.current, stats.ended), (2510, 20));
        let history = "SELECT (SELECT sum(history) FROM query_store.orgs) > 20 * 512,
                           (SELECT sum(history) FROM query_store.orgs) = sum(query_store.history_cost(q))
                       FROM query_store.queries AS q WHERE version_ended < 9223372036854775807";
        assert_eq!(server.sql_in(&database, history), ["t|t"], "the bound of the history holds at the target");
        // Writes go on after the versions and the numbers of the source.
        let body = r#"{"name":"new","sql":"select 1"}"#;
        assert_eq!(target.write(Method::POST, "/api/queries", body).await.status, 201);
        query_store::seed(&target.service, super::support::caller(), 1, NOW).await.unwrap();
        assert_eq!(target.collection().await.len(), 2491);

        let again = query_store_copy(&config, &file);
        assert_eq!(again.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&again.stderr).contains("has queries already"), "{again:?}");
    });
}

#[test]
fn interrupted_copy_leaves_nothing_and_can_be_repeated() {
    runtime().block_on(async {
        let (source, _) = source().await;
        let Fixture { home, service, .. } = source;
        let from = service.store().stats().await.unwrap();
        let file = home.path("data/queries.db");
        let target = Fixture::on(Engine::Postgresql);
        let StoreSettings::Postgresql(settings) = &target.settings.store else { unreachable!() };
        let (reached, stop) = (Cell::new(0), Notify::new());
        let report = |progress: query_store::store::copy::CopyProgress| {
            reached.set(progress.copied);
            stop.notify_one();
        };
        tokio::select! {
            copied = copy(&file, settings.database.clone(), report) => panic!("{copied:?}"),
            () = stop.notified() => {}
        }
        assert_eq!(reached.get(), 1000);
        let empty = StoreStats { current: 0, ended: 0, snapshots: 0 };
        assert_eq!(target.service.store().stats().await.unwrap(), empty);
        copy(&file, settings.database.clone(), |_| ()).await.unwrap();
        assert_eq!(target.service.store().stats().await.unwrap(), from);
    });
}

#[test]
fn file_that_is_no_store_is_not_copied() {
    runtime().block_on(async {
        let home = Engine::Sqlite.home();
        let to = postgresql_settings("postgresql://a@127.0.0.1:1/b").database;
        let missing = copy(&home.path("missing.db"), to.clone(), |_| ()).await.unwrap_err();
        assert_eq!(missing.to_string(), "cannot read the source");
        assert!(!home.path("missing.db").exists());
        rusqlite::Connection::open(home.path("other.db")).unwrap().execute_batch("CREATE TABLE x (y)").unwrap();
        let other = copy(&home.path("other.db"), to, |_| ()).await.unwrap_err();
        assert!(std::error::Error::source(&other).unwrap().to_string().contains("schema version 0"));
    });
}
