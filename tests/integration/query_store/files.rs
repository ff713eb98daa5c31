//! Files of the service: the settings, the database, and the key file.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use platform::settings::SettingsErrors;
use query_store::{self, OpenError, Settings, StoreSettings};

use super::support::{Fixture, runtime};
use crate::support::page::{Block, blocks};

fn parse(text: &str) -> Result<Settings, SettingsErrors> {
    Settings::parse(Path::new("etc/query-store.yaml"), text)
}

#[test]
fn shipped_settings_file_shows_the_defaults() {
    let shipped = Settings::load(Path::new("config/query-store.yaml")).unwrap();
    let defaults = Settings::embedded("config/../data/queries.db".into());
    assert_eq!(format!("{shipped:#?}"), format!("{defaults:#?}"));
}

#[test]
fn documented_settings_are_valid() {
    let examples: Vec<Block> = blocks().into_iter().filter(|block| block.language == "yml").collect();
    assert!(!examples.is_empty());
    for Block { text: example, .. } in examples {
        // The secrets are in the environment of the reader.
        let text = example.replace("{ env: QUERY_STORE_PASSWORD }", "hunter2");
        parse(&text.replace("{ env: QUERY_STORE_CURSOR_KEY }", "0123456789abcdef0123456789abcdef")).unwrap();
    }
}

#[test]
fn commented_settings_of_postgresql_are_valid() {
    let shipped = std::fs::read_to_string("config/query-store.yaml").unwrap();
    let block = shipped.split("  # postgresql:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let block: String = block.lines().map(|line| format!("{}\n", line.replacen("  # ", "  ", 1))).collect();
    let block = block.replace("{ env: QUERY_STORE_PASSWORD }", "hunter2");
    let keys = "cursor: {keys: [{id: 1, secret: 0123456789abcdef0123456789abcdef}]}\n";
    let error = parse(&format!("store:\n  postgresql:\n{block}{keys}")).unwrap_err().to_string();
    // The certificates are not there, and all else is right.
    let problems: Vec<&str> = error.lines().filter(|line| !line.contains("cannot be read")).collect();
    assert_eq!(problems, Vec::<&str>::new());
    assert_eq!(error.lines().count(), 3, "{error}");
}

#[test]
fn paths_are_relative_to_the_settings_file() {
    let settings = parse("store: {sqlite: {path: data/queries.db}}").unwrap();
    assert_eq!(settings.store, StoreSettings::Sqlite { path: "etc/data/queries.db".into() });
}

#[test]
fn settings_errors_are_reported_together_and_without_secrets() {
    let text = "listen: everywhere\nstore: {sqlite: {file: x}}\ncursor:\n  lifetime: 24\n  keys:\n    \
                - {id: 256, secret: hunter2}\nhttp: {max_body: 0}\nlimits: {}\n";
    let problems: Vec<String> = parse(text).unwrap_err().iter().map(ToString::to_string).collect();
    let starts = ["1:", "2:", "2:", "4:", "6:", "6:", "7:", "8:"].map(|line| format!("etc/query-store.yaml:{line}"));
    assert_eq!(problems.len(), starts.len(), "{problems:#?}");
    assert!(problems.iter().zip(starts).all(|(problem, start)| problem.starts_with(&start)), "{problems:#?}");
    assert!(!problems.concat().contains("hunter2"));
    let twice = "store: {sqlite: {path: x}}\ncursor: {keys: [{id: 1, secret: 0123456789abcdef0123456789abcdef}, \
                 {id: 1, secret: 0123456789abcdef0123456789abcdef}]}";
    assert!(parse(twice).unwrap_err().to_string().contains("key 1 is given twice"));
}

#[test]
fn files_are_readable_by_their_owner_only() {
    runtime().block_on(async {
        let fixture = Fixture::new().seeded(3).await;
        let files: Vec<_> = std::fs::read_dir(fixture.home.path("data")).unwrap().collect();
        assert!(files.len() >= 3, "{files:?}");
        for file in files {
            let file = file.unwrap();
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
        }
    });
}

#[test]
fn database_can_be_shared_by_two_processes() {
    runtime().block_on(async {
        let running = Fixture::new().seeded(10).await;
        let all = running.collection().await;
        let first = running.get("/api/queries?limit=4").await;
        let beside = query_store::open(&running.settings).unwrap();
        query_store::seed(&beside, running.caller, 5, super::support::NOW).await.unwrap();
        let rest = running.get(&format!("/api/queries?cursor={}", first.cursor().unwrap())).await;
        assert_eq!([first.items(), rest.items()].concat(), all);
        assert_eq!(running.collection().await.len(), 15);
    });
}

#[test]
fn database_of_another_release_is_not_changed() {
    let fixture = Fixture::new();
    let Fixture { home, settings, service, .. } = fixture;
    drop(service);
    let database = home.path("data/queries.db");
    for version in [1, 99] {
        rusqlite::Connection::open(&database).unwrap().pragma_update(None, "user_version", version).unwrap();
        let error = query_store::open(&settings).unwrap_err();
        assert!(matches!(error, OpenError::Store { .. }), "{error}");
        let source = std::error::Error::source(&error).unwrap().to_string();
        let expected =
            format!("schema version {version}, and this release reads version 2; use the release that wrote it");
        assert!(source.contains(&expected), "{source}");
    }
}
