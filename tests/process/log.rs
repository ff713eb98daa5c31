//! The log on standard error: nobody waits for its reader, and it is complete when the process ends, however it does.

use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper::client::conn::http2::SendRequest;
use serde_json::Value;

use crate::support::{KEYGATE, Setup, Upstream, eventually, exit_status, metric, over_http2};

/// A gateway whose standard error is a pipe, which is read when the test does.
struct Piped {
    child: Child,
    stderr: Option<ChildStderr>,
}

impl Piped {
    fn start(setup: &Setup, level: &str) -> Self {
        // Tests in the background of a shell ignore SIGQUIT, and so would the gateway.
        let mut command = Command::new("env");
        command.args(["--default-signal=QUIT", KEYGATE, "serve", "--config"]).arg(setup.path().join("keygate.yaml"));
        command.env("KEYGATE_LOG", level);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take();
        let piped = Self { child, stderr };
        eventually("the gateway is ready", || setup.keygate(&["health"]).status.success());
        piped
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Reads the log to its end.
    fn read(&mut self) -> String {
        let mut text = String::new();
        self.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn lines(setup: &Setup, result: &str) -> f64 {
    metric(setup.admin, &format!("keygate_log_lines_total{{result=\"{result}\"}}"))
}

/// The status of a request over HTTP/2, on a connection of its own.
fn request_without_key(address: SocketAddr) -> u16 {
    over_http2(address, async |mut sender: SendRequest<Empty<Bytes>>| {
        let request = Request::get(format!("http://{address}/")).body(Empty::new()).unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(20), sender.send_request(request)).await;
        answer.expect("the worker goes on").unwrap().status().as_u16()
    })
}

/// Sends requests without a key, of which the HTTP/2 library logs each frame, until lines of the log are dropped: more
/// than a pipe and the queue hold.
fn drop_lines(setup: &Setup) {
    while lines(setup, "dropped") == 0.0 {
        for _ in 0..50 {
            assert_eq!(request_without_key(setup.address), 401);
        }
    }
}

#[test]
fn log_that_is_not_read_stops_no_worker_and_is_dropped_and_counted() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "workers: 2");
    let mut gateway = Piped::start(&setup, "info,h2=trace");
    drop_lines(&setup);
    let before = lines(&setup, "written");
    let stderr = gateway.stderr.take().unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || std::io::read_to_string(stderr).unwrap());
        eventually("lines are written again", || lines(&setup, "written") > before);
        gateway.signal("TERM");
        assert_eq!(exit_status(&mut gateway.child).code(), Some(0));
        let text = reader.join().unwrap();
        assert!(text.trim_end().ends_with("stopped"), "the last line is there, behind those that were dropped");
    });
}

#[test]
fn stop_does_not_wait_for_ever_for_a_log_that_is_not_read() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "");
    let mut gateway = Piped::start(&setup, "info,h2=trace");
    drop_lines(&setup);
    gateway.signal("TERM");
    assert_eq!(exit_status(&mut gateway.child).code(), Some(0));
}

#[test]
fn log_of_a_start_that_fails_is_whole_and_comes_before_the_error() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "");
    let _taken = std::net::TcpListener::bind(setup.address).unwrap();
    for _ in 0..10 {
        let output = setup.keygate(&["serve"]);
        let text = String::from_utf8(output.stderr).unwrap();
        let warning = text.find("no `routes` are configured");
        let error = text.find("cannot listen on");
        assert!(!output.status.success() && warning.is_some() && warning < error, "{text}");
    }
}

#[test]
fn signal_that_ends_the_gateway_leaves_a_line() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "");
    for (name, code) in [
        ("USR1", 138),
        ("ALRM", 142),
        ("STKFLT", 144),
        ("XCPU", 152),
        ("XFSZ", 153),
        ("VTALRM", 154),
        ("PROF", 155),
        ("IO", 157),
        ("PWR", 158),
        ("SYS", 159),
        ("TRAP", 133),
    ] {
        let mut gateway = Piped::start(&setup, "info");
        gateway.signal(name);
        assert_eq!(exit_status(&mut gateway.child).code(), Some(code), "SIG{name}");
        assert!(gateway.read().contains(&format!("signal=\"SIG{name}\"")));
    }
    for name in ["QUIT", "ABRT"] {
        let mut gateway = Piped::start(&setup, "info");
        gateway.signal(name);
        assert_eq!(exit_status(&mut gateway.child).signal(), Some(6), "SIG{name}");
        assert!(gateway.read().contains(&format!("signal=\"SIG{name}\"")));
    }
}

const ENDED: &str = "the last gateway ended without stopping";

#[test]
fn end_that_could_leave_no_line_is_told_by_the_next_start() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "");
    for name in ["KILL", "SEGV", "BUS"] {
        let mut gateway = Piped::start(&setup, "info");
        assert!(!gateway.read_so_far(&setup).contains(ENDED), "the one before has stopped");
        // More than once: the first fault is taken for an overflow of the stack, and then for none.
        eventually("it has ended", || {
            gateway.signal(name);
            gateway.child.try_wait().unwrap().is_some()
        });
        // A command that opens the journal meanwhile is no start.
        setup.ok(&["org", "create", name]);
        let mut next = Piped::start(&setup, "info");
        let process = format!("process={}", gateway.child.id());
        next.signal("TERM");
        assert_eq!(exit_status(&mut next.child).code(), Some(0));
        let text = next.read();
        assert!(text.contains(ENDED) && text.contains(&process), "{text}");
    }
}

impl Piped {
    /// Stops it, reads its log, and starts another one in its place.
    fn read_so_far(&mut self, setup: &Setup) -> String {
        self.signal("TERM");
        assert_eq!(exit_status(&mut self.child).code(), Some(0));
        let text = self.read();
        *self = Self::start(setup, "info");
        text
    }
}

/// The program of the next test: panics in a thread, and then in a destructor while it unwinds,
/// which aborts the process.
#[test]
#[ignore = "the next test starts it as a process"]
fn panicking() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("the second one");
        }
    }
    if std::env::var_os("KEYGATE_TEST_PANICS").is_none() {
        return;
    }
    let settings = platform::telemetry::Settings { format: platform::telemetry::LogFormat::Json, ..Default::default() };
    let _logs = platform::telemetry::init_queued(settings);
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    assert!(thread("worker-7").spawn(|| panic!("number {}", 1)).unwrap().join().is_err());
    let run = || {
        let _bomb = Bomb;
        panic!("the first one");
    };
    thread("worker-8").spawn(run).unwrap().join().ok();
}

#[test]
fn panic_of_any_thread_leaves_a_line_also_when_it_aborts_the_process() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "log::panicking", "--ignored", "--nocapture"]).env("KEYGATE_TEST_PANICS", "1");
    let output = command.env_remove("RUST_BACKTRACE").output().unwrap();
    assert_eq!(output.status.signal(), Some(6), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let told: Vec<_> =
        lines.map(|line| (line["thread"].clone(), line["panic"].clone(), line["place"].clone())).collect();
    let panics = [("worker-7", "number 1"), ("worker-8", "the first one"), ("worker-8", "the second one")];
    for (told, (thread, message)) in told.iter().zip(panics) {
        assert_eq!((&told.0, &told.1), (&thread.into(), &message.into()), "{text}");
        assert!(told.2.as_str().unwrap().contains("log.rs:"), "{text}");
    }
    assert!(told.len() >= 3, "{text}");
}
