//! Rolling restart of the upstream: three processes end, one after the other, under load, with a drain of their own
//! (SIGTERM) or without (SIGKILL). No GET fails, and no POST is executed twice.
//!
//! An upstream process is this test binary itself, which runs [`upstream_process`]. It notes the id of each
//! request before it answers.

use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::support::{Client, Setup, eventually, exit_status, free_address, head, metric};

/// Environment of an upstream process: its address, the file of ids, and its protocol.
const ADDRESS: &str = "TEST_UPSTREAM_ADDRESS";
const IDS: &str = "TEST_UPSTREAM_IDS";
const PROTOCOL: &str = "TEST_UPSTREAM_PROTOCOL";

#[test]
#[ignore = "runs as an upstream process, when a test starts it"]
fn upstream_process() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let ids = std::fs::OpenOptions::new().append(true).create(true).open(std::env::var(IDS).unwrap()).unwrap();
    let is_http2 = std::env::var(PROTOCOL).unwrap() == "http2";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(serve(address.parse().unwrap(), ids, is_http2));
}

/// Serves until SIGTERM, then ends all connections after their requests.
async fn serve(address: SocketAddr, ids: std::fs::File, is_http2: bool) {
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let ids: &'static std::fs::File = Box::leak(Box::new(ids));
    let (stop, stopped) = watch::channel(());
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted.unwrap().0,
            _ = terminate.recv() => break,
        };
        let service = service_fn(move |request| answer(request, ids));
        let mut stopped = stopped.clone();
        tokio::spawn(async move {
            macro_rules! serve {
                ($connection:expr) => {{
                    let mut connection = std::pin::pin!($connection);
                    tokio::select! {
                        ended = connection.as_mut() => drop(ended),
                        _ = stopped.changed() => {
                            connection.as_mut().graceful_shutdown();
                            connection.await.ok();
                        }
                    }
                }};
            }
            if is_http2 {
                let builder = http2::Builder::new(TokioExecutor::new());
                serve!(builder.serve_connection(TokioIo::new(stream), service));
            } else {
                serve!(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
            drop(stopped);
        });
    }
    drop((listener, stopped));
    stop.send(()).ok();
    stop.closed().await;
}

/// Notes a request, works on it for some milliseconds, and answers.
async fn answer(request: Request<Incoming>, mut ids: &std::fs::File) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let id = request.headers()["x-request-id"].to_str().unwrap().to_owned();
    let line = format!("{} {id}\n", request.method());
    request.into_body().collect().await?;
    ids.write_all(line.as_bytes()).unwrap();
    tokio::time::sleep(Duration::from_millis(3)).await;
    Ok(Response::new(Full::from("ok")))
}

/// An upstream process, which can be started again.
struct Replica {
    address: SocketAddr,
    ids: PathBuf,
    protocol: &'static str,
    child: Option<Child>,
}

impl Replica {
    fn new(directory: &Path, number: usize, protocol: &'static str) -> Self {
        let ids = directory.join(format!("ids-{number}"));
        let mut replica = Self { address: free_address(), ids, protocol, child: None };
        replica.start();
        replica
    }

    fn start(&mut self) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "upstream_restarts::upstream_process", "--nocapture"]);
        command.env(ADDRESS, self.address.to_string()).env(IDS, &self.ids).env(PROTOCOL, self.protocol);
        self.child = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        eventually("the upstream process listens", || std::net::TcpStream::connect(self.address).is_ok());
    }

    /// Ends the process, at once or after its drain.
    fn end(&mut self, is_drained: bool) {
        let mut child = self.child.take().unwrap();
        if is_drained {
            let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
            assert!(sent.success());
            assert!(exit_status(&mut child).success());
        } else {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Lines of the requests that were noted.
    fn noted(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.ids).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// Responses that the clients have seen.
#[derive(Default)]
struct Seen {
    answered: AtomicUsize,
    is_over: AtomicBool,
    /// Ids of the POSTs that were answered with 200.
    posted: Mutex<HashSet<String>>,
}

/// Ends the clients, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn load(address: SocketAddr, key: &str, method: &str, seen: &Seen) {
    let mut client = Client::connect(address);
    while !seen.is_over.load(Ordering::Relaxed) {
        let body = if method == "POST" { "once" } else { "" };
        client.send(head(method, "/", key, &[], body.len())).send(body);
        let response = client.try_response_to(method).unwrap_or_else(|error| panic!("{method}: {error:?}"));
        if method == "GET" {
            assert_eq!(response.status, 200, "{}", String::from_utf8_lossy(&response.body));
        } else if response.status == 200 {
            let id = response.header("x-request-id").unwrap().to_owned();
            seen.posted.lock().unwrap().insert(id);
        } else {
            assert_eq!(response.code(), "upstream_failed", "it may have been executed, and is not repeated");
        }
        seen.answered.fetch_add(1, Ordering::Relaxed);
        // The upstream may be gone before the gateway has read the body, which it then does not wait for.
        if response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            client = Client::connect(address);
        }
    }
}

/// Restarts three processes one after the other under load, twice.
fn roll(protocol: &'static str, is_drained: bool) {
    let directory = tempfile::tempdir().unwrap();
    let mut replicas = [1, 2, 3].map(|number| Replica::new(directory.path(), number, protocol));
    let endpoints = replicas.each_ref().map(|replica| format!("'http://{}'", replica.address)).join(", ");
    let blocks = "limits: { key: { requests: 1000000, per: 1s } }\nworkers: 2";
    let setup = Setup::new(replicas[0].address, blocks);
    let outlier = "outlier: { ejection: 200ms, max_ejection: 1s, slow_start: 100ms }";
    let only = format!("upstream: {{ endpoints: ['http://{}'] }}", replicas[0].address);
    let all = format!("upstream: {{ endpoints: [{endpoints}], protocol: {protocol}, {outlier} }}");
    setup.write(&setup.text().replace(&only, &all));
    let (key, _gateway, seen) = (setup.key(), setup.start(), Seen::default());
    std::thread::scope(|scope| {
        let _over = Over(&seen.is_over);
        let clients: Vec<_> = ["GET", "GET", "GET", "POST", "POST"]
            .map(|method| scope.spawn(|| load(setup.address, &key, method, &seen)))
            .into_iter()
            .collect();
        let goes_on = || assert!(!clients.iter().any(std::thread::ScopedJoinHandle::is_finished), "no request fails");
        for number in [0, 1, 2, 0, 1, 2] {
            let before = seen.answered.load(Ordering::Relaxed);
            eventually("requests go on", || {
                goes_on();
                seen.answered.load(Ordering::Relaxed) > before + 100
            });
            let replica = &mut replicas[number];
            replica.end(is_drained);
            let (noted, up) = (
                replica.noted().len(),
                format!("keygate_upstream_endpoint_up{{endpoint=\"{}\",upstream=\"default\"}}", replica.address),
            );
            replica.start();
            eventually("it has requests again", || {
                goes_on();
                replica.noted().len() > noted && metric(setup.admin, &up) == 1.0
            });
        }
    });
    let mut times: HashMap<String, usize> = HashMap::new();
    replicas.iter().flat_map(Replica::noted).for_each(|line| *times.entry(line).or_default() += 1);
    let posts = times.iter().filter_map(|(line, times)| Some((line.strip_prefix("POST ")?, *times)));
    let twice: Vec<_> = posts.filter(|(_, times)| *times > 1).collect();
    assert!(twice.is_empty(), "executed twice: {twice:?}");
    let posted = seen.posted.into_inner().unwrap();
    assert!(posted.len() > 100 && posted.iter().all(|id| times.contains_key(&format!("POST {id}"))));
}

#[test]
fn restart_with_a_drain_fails_no_request_over_http1() {
    roll("http1", true);
}

#[test]
fn restart_without_a_drain_fails_no_request_over_http1() {
    roll("http1", false);
}

#[test]
fn restart_with_a_drain_fails_no_request_over_http2() {
    roll("http2", true);
}

#[test]
fn restart_without_a_drain_fails_no_request_over_http2() {
    roll("http2", false);
}
