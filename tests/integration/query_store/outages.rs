//! The service on PostgreSQL when the database is away, hangs, comes back, or is not what it should
//! be; and its settings.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use http::Method;
use platform::postgresql::Connector;
use query_store::store::{PostgresqlError, PostgresqlStore, Store, StoreError};
use query_store::{self, Settings, StoreSettings};

use super::support::{Engine, Fixture, Home, cursor_key, postgresql_settings, runtime};
use crate::support::redis::Certificates;
use crate::support::{Postgresql, free_port};

const BODY: &str = r#"{"name":"x","sql":"select 1"}"#;

/// A service whose database is at a URL, with a deadline that a test can wait for.
fn service_at(url: &str, deadline: Duration) -> Fixture {
    let home = Home::Sqlite { directory: super::support::directory() };
    let mut settings = home.settings();
    let mut database = postgresql_settings(url);
    database.deadline = deadline;
    settings.store = StoreSettings::Postgresql(Box::new(database));
    settings.cursor.keys = vec![cursor_key(1)];
    let service = query_store::open(&settings).unwrap();
    Fixture { home, settings, service, caller: super::support::caller() }
}

async fn assert_unavailable(fixture: &Fixture) {
    for (method, target) in [(Method::GET, "/api/queries"), (Method::POST, "/api/queries"), (Method::GET, "/ready")] {
        let answer = fixture.write(method.clone(), target, BODY).await;
        assert_eq!(answer.code(), (503, "store_unavailable"), "{method} {target}");
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        assert!(!answer.body.to_string().contains("localhost"), "{answer:?}");
    }
}

async fn wait_until_ready(fixture: &Fixture) {
    let mut attempts = 0;
    while fixture.get("/ready").await.status != 200 {
        attempts += 1;
        assert!(attempts < 600, "the database does not come back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn unreachable_database_is_answered_with_a_problem() {
    runtime().block_on(async {
        let refused = format!("postgresql://keygate@127.0.0.1:{}/keygate", free_port());
        assert_unavailable(&service_at(&refused, Duration::from_secs(30))).await;
        // Accepts connections, and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("postgresql://keygate@127.0.0.1:{}/keygate", silent.local_addr().unwrap().port());
        assert_unavailable(&service_at(&url, Duration::from_millis(200))).await;
    });
}

#[test]
fn service_begins_before_its_database_and_survives_its_crash() {
    let mut server = Postgresql::start();
    server.crash();
    runtime().block_on(async {
        let fixture = service_at(&server.url(), Duration::from_secs(30));
        assert_unavailable(&fixture).await;
        server.restart();
        wait_until_ready(&fixture).await;
        for _ in 0..3 {
            assert_eq!(fixture.write(Method::POST, "/api/queries", BODY).await.status, 201);
        }
        let first = fixture.get("/api/queries?limit=1").await;
        server.crash();
        assert_unavailable(&fixture).await;
        server.restart();
        wait_until_ready(&fixture).await;
        assert_eq!(fixture.collection().await.len(), 3, "acknowledged writes survive");
        let rest = fixture.get(&format!("/api/queries?cursor={}", first.cursor().unwrap())).await;
        assert_eq!(rest.items().len(), 2, "and so does the snapshot of a cursor");
    });
}

#[test]
fn operation_that_waits_too_long_fails_and_leaves_nothing_behind() {
    runtime().block_on(async {
        let server = Postgresql::shared();
        let database = server.create_database();
        let fixture = service_at(&server.url_of(&database), Duration::from_millis(500));
        let settings = postgresql_settings(&server.url_of(&database));
        let patient = Store::Postgresql(PostgresqlStore::open(&settings).unwrap());
        patient.prepare().await.unwrap();
        wait_until_ready(&fixture).await;
        let blocker = Connector::open(settings.database).unwrap().connect("blocker").await.unwrap();
        blocker.batch_execute("BEGIN; LOCK TABLE query_store.orgs IN ACCESS EXCLUSIVE MODE").await.unwrap();
        for method in [Method::GET, Method::POST] {
            let answer = fixture.write(method, "/api/queries", BODY).await;
            assert_eq!(answer.code(), (503, "store_unavailable"));
        }
        // The server ends the statements by itself, so that none has its effect later.
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'query-store' AND state = 'active'";
        crate::support::eventually("no statement waits", || server.sql_in(&database, waiting) == ["0"]);
        blocker.batch_execute("ROLLBACK").await.unwrap();
        wait_until_ready(&fixture).await;
        assert_eq!(patient.stats().await.unwrap().current, 0);
    });
}

#[test]
fn unusable_databases_are_told_from_absent_ones() {
    runtime().block_on(async {
        let server = Postgresql::shared();
        let database = server.create_database();
        let prepare = async |url: &str| {
            Store::Postgresql(PostgresqlStore::open(&postgresql_settings(url)).unwrap()).prepare().await
        };
        let missing = prepare(&server.url_of("missing")).await.unwrap_err();
        assert!(missing.is_permanent(), "{missing:?}");
        let away = prepare(&format!("postgresql://a@127.0.0.1:{}/b", free_port())).await.unwrap_err();
        assert!(!away.is_permanent(), "{away:?}");

        prepare(&server.url_of(&database)).await.unwrap();
        server.sql_in(&database, "INSERT INTO query_store.migrations (version) VALUES (99)");
        let newer = prepare(&server.url_of(&database)).await.unwrap_err();
        assert!(newer.is_permanent() && format!("{newer:?}").contains("found: 99"), "{newer:?}");
    });
}

#[test]
fn service_on_a_database_without_writes_is_not_ready() {
    runtime().block_on(async {
        let fixture = Fixture::on(Engine::Postgresql).seeded(3).await;
        let Home::Postgresql { server, database } = &fixture.home else { unreachable!() };
        // As a primary that becomes a replica: its connections end, and new ones accept no writes.
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'query-store'";
        let mine = format!("{end} AND datname = '{database}'");
        server.sql(&format!("ALTER DATABASE {database} SET default_transaction_read_only = on; {mine}"));
        // The first attempts may meet connections that have just ended.
        let mut attempts = 0;
        while !matches!(
            fixture.service.store().check().await,
            Err(StoreError::Postgresql(PostgresqlError::ReadOnly { .. }))
        ) {
            attempts += 1;
            assert!(attempts < 100, "a database without writes is taken for a good one");
        }
        assert_eq!(fixture.get("/ready").await.code(), (503, "store_unavailable"));
        assert_eq!(fixture.write(Method::POST, "/api/queries", BODY).await.code(), (503, "store_unavailable"));
        // The connections that accept no writes were given up, so the service comes back by itself.
        server.sql(&format!("ALTER DATABASE {database} RESET default_transaction_read_only"));
        wait_until_ready(&fixture).await;
        assert_eq!(fixture.write(Method::POST, "/api/queries", BODY).await.status, 201);
        assert_eq!(fixture.collection().await.len(), 4);
    });
}

#[test]
fn database_is_reached_over_tls_only_with_its_authority() {
    let certificates = Certificates::generate();
    let server = Postgresql::with_tls(&certificates);
    let settings = |tls: &str| {
        let text = format!(
            "store: {{postgresql: {{url: '{}', deadline: 60s{tls}}}}}\n\
             cursor: {{keys: [{{id: 1, secret: 0123456789abcdef0123456789abcdef}}]}}",
            server.url()
        );
        let StoreSettings::Postgresql(settings) = Settings::parse(Path::new("/x.yaml"), &text).unwrap().store else {
            unreachable!()
        };
        Store::Postgresql(PostgresqlStore::open(&settings).unwrap())
    };
    runtime().block_on(async {
        settings(&format!(", tls: {{ca: '{}'}}", certificates.ca().display())).check().await.unwrap();
        let error = settings("").check().await.unwrap_err();
        assert!(matches!(error, StoreError::Postgresql(PostgresqlError::Database(_))), "{error:?}");
    });
}

fn parse(store: &str, keys: &str) -> Result<Settings, String> {
    let text = format!("store: {store}\ncursor: {{keys: [{keys}]}}\n");
    Settings::parse(Path::new("etc/query-store.yaml"), &text).map_err(|errors| errors.to_string())
}

#[test]
fn settings_of_a_database_are_checked_and_never_shown() {
    const KEY: &str = "{id: 1, secret: 0123456789abcdef0123456789abcdef}";
    let url = "postgresql://store@db.example:5433/queries";
    let settings = parse(&format!("{{postgresql: {{url: '{url}', password: hunter2}}}}"), KEY).unwrap();
    let StoreSettings::Postgresql(store) = &settings.store else { panic!("{settings:?}") };
    assert!(store.database.has_password());
    assert_eq!((store.connections, store.deadline), (10, Duration::from_secs(5)));
    assert_eq!(settings.store.to_string(), "db.example:5433/queries");
    assert!(!format!("{settings:?}").contains("hunter2"));

    for (store, keys, problem) in [
        (format!("{{postgresql: {{url: '{url}'}}}}"), "", "has no `keys`"),
        (format!("{{postgresql: {{url: '{url}'}}, sqlite: {{path: x}}}}"), KEY, "is given beside `sqlite`"),
        ("{postgresql: {}}".to_owned(), KEY, "store.postgresql.url"),
        ("{postgresql: {url: 'mysql://hunter2'}}".to_owned(), KEY, "begins with something else"),
        (format!("{{postgresql: {{url: '{url}', deadline: 1ms}}}}"), KEY, "store.postgresql.deadline"),
        (format!("{{postgresql: {{url: '{url}', connections: 0}}}}"), KEY, "store.postgresql.connections"),
        (
            format!("{{postgresql: {{url: '{url}', replicas: ['{url}']}}}}"),
            KEY,
            "store.postgresql.replicas: is no setting any more, as all pages come from the database of `url`",
        ),
        ("{postgresql: {url: 'postgresql://a:hunter2@b/c', password: hunter2}}".to_owned(), KEY, "is given twice"),
    ] {
        let error = parse(&store, keys).unwrap_err();
        assert!(error.contains(problem) && !error.contains("hunter2"), "{store}: {error}");
    }
}

#[test]
fn embedded_service_on_postgresql_needs_cursor_keys() {
    let mut settings = Engine::Sqlite.home().settings();
    settings.store = StoreSettings::Postgresql(Box::new(postgresql_settings("postgresql://a@localhost/b")));
    assert!(matches!(query_store::open(&settings), Err(query_store::OpenError::NoCursorKeys)));
}
