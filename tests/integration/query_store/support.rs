//! A service over a fresh store, and requests to it at chosen times.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use keygate::clock::Micros;
use keygate::identity::{OrgId, UserId};
use keygate::query_store::query::QueryDraft;
use keygate::query_store::service::Caller;
use keygate::query_store::{self, QueryService, Settings, http as query_http};
use serde_json::Value;

/// Time of the tests.
pub const NOW: Micros = Micros(1_800_000_000_000_000);
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub struct Fixture {
    pub directory: tempfile::TempDir,
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
        Self::with(|_| ())
    }

    pub fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let directory = directory();
        let mut settings = Settings::embedded(directory.path().join("data/queries.db"));
        change(&mut settings);
        let service = query_store::open(&settings).unwrap();
        Self { directory, settings, service, caller: caller() }
    }

    /// Stores the first `count` sample queries.
    pub async fn seeded(self, count: u32) -> Self {
        query_store::seed(&self.service, self.caller, count, NOW).await.unwrap();
        self
    }

    /// Closes the service, and opens its files again.
    pub fn reopen(self) -> Self {
        let Self { directory, settings, service, caller } = self;
        drop(service);
        let service = query_store::open(&settings).unwrap();
        Self { directory, settings, service, caller }
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
