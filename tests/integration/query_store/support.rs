//! A service over a fresh store of either engine, and requests to it at chosen times.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::secret::Secret;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use query_store::query::QueryDraft;
use query_store::service::Caller;
use query_store::store::postgresql::PostgresqlSettings;
use query_store::store::{PostgresqlStore, SqliteStore, Store};
use query_store::{self, QueryService, Settings, StoreSettings, http as query_http};
use serde_json::Value;

use crate::support::Postgresql;

/// Time of the tests.
pub const NOW: Micros = Micros(1_800_000_000_000_000);
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Engines of the store: the same cases run with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Sqlite,
    Postgresql,
}

/// Place of a fresh store.
pub enum Home {
    Sqlite { directory: tempfile::TempDir },
    Postgresql { server: Arc<Postgresql>, database: String },
}

/// Makes each case, a function of an [`Engine`], a test with each engine.
macro_rules! with_every_engine {
    ($($case:ident),+ $(,)?) => {
        mod sqlite {
            $(
                #[test]
                fn $case() {
                    super::$case(super::Engine::Sqlite);
                }
            )+
        }
        mod postgresql {
            $(
                #[test]
                fn $case() {
                    super::$case(super::Engine::Postgresql);
                }
            )+
        }
    };
}
pub(crate) use with_every_engine;

pub struct Fixture {
    pub home: Home,
    pub settings: Settings,
    pub service: QueryService,
    pub caller: Caller,
}

/// A response, with its body parsed as JSON; `Null` when it is empty.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
}

/// A directory in memory where possible: these tests write a lot and need not survive a power cut.
pub fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub fn caller() -> Caller {
    Caller { org: OrgId::generate(), user: UserId::generate() }
}

pub fn draft(name: &str) -> QueryDraft {
    QueryDraft::new(name.to_owned(), format!("select '{name}'")).unwrap()
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Settings of a store in a database. Its deadline is far longer than any operation takes, also on a slow machine.
pub fn postgresql_settings(url: &str) -> PostgresqlSettings {
    PostgresqlSettings {
        database: platform::postgresql::Settings::parse(url, None).unwrap(),
        connections: 10,
        deadline: Duration::from_secs(60),
    }
}

/// A cursor key for settings.
pub fn cursor_key(id: u8) -> (u8, Secret) {
    (id, Secret::new(format!("secret number {id} is random enough")))
}

impl Engine {
    /// A place for a store: a directory, or a database on a server that other tests use too.
    pub fn home(self) -> Home {
        match self {
            Self::Sqlite => Home::Sqlite { directory: directory() },
            Self::Postgresql => {
                let server = Postgresql::shared();
                let database = server.create_database();
                Home::Postgresql { server, database }
            }
        }
    }
}

impl Home {
    /// Settings of a service here.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::embedded(self.path("data/queries.db"));
        if let Self::Postgresql { server, database } = self {
            settings.store = StoreSettings::Postgresql(Box::new(postgresql_settings(&server.url_of(database))));
            settings.cursor.keys = vec![cursor_key(1)];
        }
        settings
    }

    /// A store here, which is empty before the first one.
    pub fn store(&self) -> Store {
        match self {
            Self::Sqlite { .. } => Store::Sqlite(SqliteStore::open(&self.path("queries.db")).unwrap()),
            Self::Postgresql { server, database } => {
                let settings = postgresql_settings(&server.url_of(database));
                Store::Postgresql(PostgresqlStore::open(&settings).unwrap())
            }
        }
    }

    /// An empty place again, for the next case of a property.
    pub fn emptied(self) -> Self {
        match self {
            Self::Sqlite { .. } => Engine::Sqlite.home(),
            Self::Postgresql { server, database } => {
                server.sql_in(&database, "DROP SCHEMA IF EXISTS query_store CASCADE");
                Self::Postgresql { server, database }
            }
        }
    }

    /// Path of a file of a SQLite store; not used with PostgreSQL.
    pub fn path(&self, name: &str) -> std::path::PathBuf {
        match self {
            Self::Sqlite { directory } => directory.path().join(name),
            Self::Postgresql { .. } => name.into(),
        }
    }
}

/// A request of a caller.
pub fn request(caller: Caller, method: Method, target: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(target)
        .header("x-org-id", caller.org.to_string())
        .header("x-user-id", caller.user.to_string())
}

impl Fixture {
    pub fn new() -> Self {
        Self::on(Engine::Sqlite)
    }

    pub fn on(engine: Engine) -> Self {
        Self::with(engine, |_| ())
    }

    pub fn with(engine: Engine, change: impl FnOnce(&mut Settings)) -> Self {
        let home = engine.home();
        let mut settings = home.settings();
        change(&mut settings);
        let service = query_store::open(&settings).unwrap();
        Self { home, settings, service, caller: caller() }
    }

    /// Stores the first `count` sample queries.
    pub async fn seeded(self, count: u32) -> Self {
        query_store::seed(&self.service, self.caller, count, NOW).await.unwrap();
        self
    }

    /// Closes the service, and opens its files again.
    pub fn reopen(self) -> Self {
        let Self { home, settings, service, caller } = self;
        drop(service);
        let service = query_store::open(&settings).unwrap();
        Self { home, settings, service, caller }
    }

    pub async fn send(&self, request: Request<Full<Bytes>>, now: Micros) -> Answer {
        let (head, body) = query_http::handle(&self.service, request, now).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
        Answer { status: head.status, headers: head.headers, body }
    }

    pub async fn get(&self, target: &str) -> Answer {
        self.get_at(self.caller, target, NOW).await
    }

    pub async fn get_at(&self, caller: Caller, target: &str, now: Micros) -> Answer {
        self.send(request(caller, Method::GET, target).body(Full::default()).unwrap(), now).await
    }

    pub async fn write(&self, method: Method, target: &str, body: &str) -> Answer {
        let request = request(self.caller, method, target).header("content-type", "application/json");
        self.send(request.body(Full::from(body.to_owned())).unwrap(), NOW).await
    }

    /// Reads the pages of one sequence, and calls `between` after each one but the last.
    pub async fn pages(&self, limit: &str, mut between: impl AsyncFnMut(usize)) -> Vec<Vec<Value>> {
        let mut pages = Vec::new();
        let mut target = format!("/api/queries?limit={limit}");
        loop {
            let answer = self.get(&target).await;
            assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
            pages.push(answer.items());
            let Some(cursor) = answer.cursor() else { return pages };
            target = format!("/api/queries?limit={limit}&cursor={cursor}");
            between(pages.len()).await;
        }
    }

    /// Reads the whole current collection, by one sequence.
    pub async fn collection(&self) -> Vec<Value> {
        self.pages("100", async |_| ()).await.concat()
    }
}

impl Answer {
    pub fn items(&self) -> Vec<Value> {
        self.body["items"].as_array().unwrap().clone()
    }

    pub fn cursor(&self) -> Option<String> {
        self.body.get("nextCursor").map(|cursor| cursor.as_str().unwrap().to_owned())
    }

    pub fn code(&self) -> (u16, &str) {
        (self.status.as_u16(), self.body["code"].as_str().unwrap_or_default())
    }
}
