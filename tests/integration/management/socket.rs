//! The admin socket: operations, the report of the configuration, and binding.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use control::admin::{self, BindError, Reply};
use domain::clock;
use domain::problem::Problem;
use journal::audit::Record;
use platform::accept_errors::AcceptErrorLog;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use super::{Fixture, exchange, exchange_with};
use crate::support::{eventually, until};

#[tokio::test]
async fn socket_performs_operations() {
    let fixture = Fixture::new();
    let path = fixture.directory.path().join("run/admin.sock");
    let listener = admin::bind_socket(&path).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));

    let (stop, stopped) = oneshot::channel::<()>();
    let management = Arc::clone(&fixture.management);
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
        admin::SocketServices { management, config: Arc::clone(&status), upstreams, shipping, handover, accept_errors };
    let serving = tokio::spawn(admin::serve_socket(listener, services, async { drop(stopped.await) }));
    let ask =
        async |request: &str, body: &str| exchange(UnixStream::connect(&path).await.unwrap(), request, body).await;
    let (head, body) = ask("POST /v1/operations", r#"{"operation":"org.create","name":"acme"}"#).await;
    assert!(head.starts_with("http/1.1 200") && head.contains("application/json"), "{head}");
    assert!(matches!(serde_json::from_str(&body).unwrap(), Reply::Org { org } if org.name == "acme"));

    let (head, body) = ask("POST /v1/operations", r#"{"operation":"org.create","name":"acme"}"#).await;
    assert!(head.starts_with("http/1.1 409") && head.contains("application/problem+json"), "{head}");
    let problem: Problem = serde_json::from_str(&body).unwrap();
    assert_eq!((problem.status, &*problem.code, &*problem.title), (409, "taken", "Conflict"));

    for bad in ["", "{}", r#"{"operation":"org.drop"}"#, &"x".repeat(70_000)] {
        let (head, body) = ask("POST /v1/operations", bad).await;
        assert!(head.starts_with("http/1.1 400") && body.contains("invalid_operation"), "{head} {body}");
    }
    for number in 0..22 {
        ask("POST /v1/operations", &format!(r#"{{"operation":"org.create","name":"org {number}"}}"#)).await;
    }
    let page = async |rest: &str| {
        let (head, body) = ask("POST /v1/operations", &format!(r#"{{"operation":"org.list"{rest}}}"#)).await;
        (head, serde_json::from_str::<serde_json::Value>(&body).unwrap())
    };
    let (_, first) = page("").await;
    assert_eq!((first["reply"].as_str(), first["items"].as_array().unwrap().len()), (Some("orgs"), 20));
    let rest = format!(r#","limit":1000,"cursor":{}"#, first["nextCursor"]);
    let (_, last) = page(&rest).await;
    assert_eq!((last["items"].as_array().unwrap().len(), last.get("nextCursor")), (3, None));
    assert_eq!((&last["items"][2]["name"], &first["items"][0]["name"]), (&"org 21".into(), &"acme".into()));
    for (rest, code) in [
        (r#","limit":0"#, "invalid_operation"),
        (r#","limit":"5""#, "invalid_operation"),
        (r#","offset":5"#, "invalid_operation"),
        (r#","cursor":"x""#, "invalid_cursor"),
    ] {
        let (head, problem) = page(rest).await;
        assert!(head.starts_with("http/1.1 400") && problem["code"] == code, "{head} {problem}");
    }
    assert!(ask("GET /v1/health", "").await.0.starts_with("http/1.1 200"));
    assert_eq!(serde_json::from_str::<admin::ConfigReport>(&ask("GET /v1/config", "").await.1).unwrap(), report);
    let rejected = admin::RejectedConfig { time: report.applied, sha256: None, error: "unreadable".into() };
    status.set_rejected(rejected.clone());
    let shown: admin::ConfigReport = serde_json::from_str(&ask("GET /v1/config", "").await.1).unwrap();
    assert_eq!((shown.sha256, shown.last_error), (report.sha256, Some(rejected)));
    assert!(ask("POST /v1/config", "").await.0.contains("allow: get"));
    assert!(ask("GET /v1/operations", "").await.0.contains("allow: post"));
    assert!(ask("GET /", "").await.0.starts_with("http/1.1 404"));

    let stream = UnixStream::connect(&path).await.unwrap();
    let suspend = r#"{"operation":"org.suspend","org":"acme"}"#;
    let (head, _) = exchange_with(stream, "POST /v1/operations", "keygate-sudo-uid: 4711\r\n", suspend).await;
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
