//! The admin socket: operations, the report of the configuration, and binding.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use control::admin::{self, BindError};
use control::api::Api;
use control::management::Org;
use domain::clock;
use journal::audit::Record;
use platform::accept_errors::AcceptErrorLog;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use super::{Fixture, exchange_with};
use crate::support::{eventually, until};

#[tokio::test]
async fn socket_performs_operations() {
    let fixture = Fixture::new();
    let path = fixture.directory.path().join("run/admin.sock");
    let listener = admin::bind_socket(&path).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));

    let (stop, stopped) = oneshot::channel::<()>();
    let api = Api::new(&fixture.management, admin::API_PATH);
    let report = admin::ConfigReport {
        path: "/etc/keygate/keygate.yaml".into(),
        sha256: "5e".repeat(32),
        applied: clock::now(),
        last_error: None,
    };
    let status = Arc::new(admin::ConfigStatus::new(report.clone()));
    let upstreams: admin::Reports<_> = Arc::new(Vec::new);
    let shipping: admin::Reports<_> = Arc::new(Vec::new);
    let (handover, accept_errors) = (admin::HandoverServices::none(), AcceptErrorLog::default());
    let services =
        admin::SocketServices { api, config: Arc::clone(&status), upstreams, shipping, handover, accept_errors };
    let serving = tokio::spawn(admin::serve_socket(listener, services, async { drop(stopped.await) }));
    let ask = async |request: &str, body: &str| {
        let stream = UnixStream::connect(&path).await.unwrap();
        exchange_with(stream, request, "content-type: application/json\r\n", body).await
    };
    let (head, body) = ask("POST /v1/orgs", r#"{"name":"acme"}"#).await;
    assert!(head.starts_with("http/1.1 201") && head.contains("location: /v1/orgs/org_"), "{head}");
    assert_eq!(serde_json::from_str::<Org>(&body).unwrap().name, "acme");

    let (head, body) = ask("POST /v1/operations", r#"{"operation":"org.list"}"#).await;
    assert!(head.starts_with("http/1.1 410") && body.contains("of an earlier version"), "{head} {body}");
    assert!(ask("GET /v1/health", "").await.0.starts_with("http/1.1 200"));
    assert_eq!(serde_json::from_str::<admin::ConfigReport>(&ask("GET /v1/config", "").await.1).unwrap(), report);
    let rejected = admin::RejectedConfig { time: report.applied, sha256: None, error: "unreadable".into() };
    status.set_rejected(rejected.clone());
    let shown: admin::ConfigReport = serde_json::from_str(&ask("GET /v1/config", "").await.1).unwrap();
    assert_eq!((shown.sha256, shown.last_error), (report.sha256, Some(rejected)));
    assert!(ask("POST /v1/config", "").await.0.contains("allow: get"));
    assert!(ask("DELETE /v1/orgs", "").await.0.contains("allow: get, head, post"));
    assert!(ask("GET /", "").await.0.starts_with("http/1.1 404"));

    let stream = UnixStream::connect(&path).await.unwrap();
    let fields = "content-type: application/json\r\nkeygate-sudo-uid: 4711\r\n";
    let (head, _) = exchange_with(stream, "PATCH /v1/orgs/acme", fields, r#"{"suspended":true}"#).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let records = fixture.records().await;
    let actor = |record: Option<&Record>| record.and_then(|record| record.actor.clone()).unwrap();
    let [first, last] = [records.first(), records.last()].map(actor);
    let uid = std::fs::metadata("/proc/self").unwrap().uid();
    assert!(first.ends_with(&format!("({uid})")) || first == format!("unix:{uid}"), "{first}");
    // Only root is believed about itself.
    assert_eq!(last, if uid == 0 { format!("{first} sudo:4711") } else { first });

    stop.send(()).unwrap();
    serving.await.unwrap();
    // A process that another test is starting just then has a copy of the socket until it runs its own program.
    eventually("the socket is closed after the shutdown", || std::os::unix::net::UnixStream::connect(&path).is_err());
}

#[tokio::test]
async fn stale_socket_is_replaced_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    let listening = admin::bind_socket(&path).unwrap();
    assert!(matches!(admin::bind_socket(&path), Err(BindError::InUse(_))));
    drop(listening);
    // A process that another test is starting may have a copy of this socket as well.
    drop(until("the stale socket is replaced", || admin::bind_socket(&path).ok()));
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "mine").unwrap();
    assert!(matches!(admin::bind_socket(&path), Err(BindError::NotASocket(_))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}
