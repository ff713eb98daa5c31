//! The log on standard error: nobody waits for its reader, and it is complete when the process ends, however it does.

use std::process::{Child, ChildStderr, Command, Stdio};

use crate::support::{KEYGATE, Setup, Upstream, eventually, exit_status, fetch_http2, metric};

/// A gateway whose standard error is a pipe, which is read when the test does.
struct Piped {
    child: Child,
    stderr: Option<ChildStderr>,
}

impl Piped {
    fn start(setup: &Setup, level: &str) -> Self {
        let mut command = Command::new(KEYGATE);
        command.args(["serve", "--config"]).arg(setup.path().join("keygate.yaml")).env("KEYGATE_LOG", level);
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

/// Sends requests without a key, of which the HTTP/2 library logs each frame, until lines of the log are dropped: more than a
/// pipe and the queue hold.
fn drop_lines(setup: &Setup) {
    while lines(setup, "dropped") == 0.0 {
        for _ in 0..50 {
            assert_eq!(fetch_http2(setup.address, "GET", "/", "").unwrap().status, 401);
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
