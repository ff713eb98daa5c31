//! Notifications to systemd, received on a datagram socket in its place.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use crate::support::{KEYGATE, Setup, Upstream, eventually};

/// The other end of `NOTIFY_SOCKET`.
pub struct Systemd {
    path: PathBuf,
    messages: Receiver<String>,
}

impl Systemd {
    pub fn listen(setup: &Setup) -> Self {
        let path = setup.path().join("notify.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        let (sender, messages) = mpsc::channel();
        // Reads all the time, as systemd does: the socket holds some ten messages, and the sender of one more waits.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length) = socket.recv(&mut buffer) {
                let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
                if sender.send(text).is_err() {
                    return;
                }
            }
        });
        Self { path, messages }
    }

    /// A command that starts a gateway as systemd would.
    pub fn command(setup: &Setup) -> Command {
        let mut command = Command::new(KEYGATE);
        command.env("NOTIFY_SOCKET", setup.path().join("notify.sock")).stdout(Stdio::null());
        command
    }

    /// Receives the next message, as assignments.
    pub fn next(&self) -> Vec<(String, String)> {
        let text = self.messages.recv_timeout(Duration::from_secs(60)).expect("a message in time");
        let assignments = text.lines().map(|line| line.split_once('=').expect("an assignment"));
        assignments.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Receives all messages that were sent until now.
    pub fn skip(&self) {
        self.send_last();
        while !is_last(&self.next()) {}
    }

    /// Sends a message that is behind all that were sent until now.
    fn send_last(&self) {
        UnixDatagram::unbound().unwrap().send_to(b"LAST=1", &self.path).unwrap();
    }

    /// Receives the next message that is not a watchdog notification.
    fn news(&self) -> Vec<(String, String)> {
        loop {
            let message = self.next();
            if !is_watchdog(&message) {
                return message;
            }
        }
    }
}

fn is_last(message: &[(String, String)]) -> bool {
    has(message, "LAST", "1")
}

fn is_watchdog(message: &[(String, String)]) -> bool {
    has(message, "WATCHDOG", "1")
}

pub fn has(message: &[(String, String)], name: &str, value: &str) -> bool {
    message.iter().any(|(given, told)| given == name && told == value)
}

/// The value of an assignment.
pub fn value<'a>(message: &'a [(String, String)], name: &str) -> Option<&'a str> {
    message.iter().find_map(|(given, value)| (given == name).then_some(value.as_str()))
}

#[test]
fn systemd_is_notified_of_start_reloads_and_stop() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "");
    let systemd = Systemd::listen(&setup);
    let mut gateway = setup.start_by(&mut Systemd::command(&setup));
    let ready = systemd.next();
    assert!(has(&ready, "READY", "1") && has(&ready, "STATUS", "serving"), "{ready:?}");
    let uptime = |text: &str| text.parse::<u128>().unwrap();
    let before = std::fs::read_to_string("/proc/uptime").unwrap();
    let before: f64 = before.split(' ').next().unwrap().parse().unwrap();

    gateway.hang_up();
    let reloading = systemd.next();
    assert!(has(&reloading, "RELOADING", "1"), "{reloading:?}");
    let at = reloading.iter().find_map(|(name, value)| (name == "MONOTONIC_USEC").then(|| uptime(value))).unwrap();
    assert!(at as f64 / 1e6 > before - 1.0, "the time of the reload, by the clock that systemd reads");
    assert!(has(&systemd.next(), "READY", "1"));

    setup.write("nonsense");
    gateway.hang_up();
    assert!(has(&systemd.next(), "RELOADING", "1"));
    let refused = systemd.next();
    assert!(has(&refused, "READY", "1"), "the gateway still serves: {refused:?}");
    let status = refused.iter().find(|(name, _)| name == "STATUS").unwrap();
    assert!(status.1.contains("rejected") && status.1.contains("keygate config status"), "{status:?}");

    gateway.terminate();
    let stopping = systemd.next();
    assert!(has(&stopping, "STOPPING", "1") && has(&stopping, "STATUS", "draining"), "{stopping:?}");
    assert_eq!(gateway.wait(), 0);
    systemd.send_last();
    assert!(is_last(&systemd.next()), "without a watchdog, no other message is sent");
}

#[test]
fn watchdog_is_notified_until_the_gateway_ends() {
    let upstream = Upstream::answering(|_, _| {});
    let (setup, key) = Setup::new(upstream.address, "timeouts: { lame_duck: 300ms, drain: 300ms }").and_key();
    let systemd = Systemd::listen(&setup);
    let mut gateway = setup.start_by(Systemd::command(&setup).env("WATCHDOG_USEC", "100000"));
    assert!(has(&systemd.news(), "READY", "1"));
    (0..5).for_each(|_| assert!(is_watchdog(&systemd.next())));
    let mut client = setup.client();
    client.send(crate::support::head("GET", "/never", &key, &[], 0));
    eventually("the request is at the upstream", || upstream.count() == 1);
    gateway.terminate();
    assert!(has(&systemd.news(), "STOPPING", "1"));
    // Twelve in 600 ms, fewer on a busy machine.
    (0..3).for_each(|_| assert!(is_watchdog(&systemd.next()), "also while it drains"));
    assert_eq!(gateway.wait(), 0);
}

#[test]
fn watchdog_of_another_process_is_not_notified() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "");
    let systemd = Systemd::listen(&setup);
    // A watchdog that is meant for another process.
    let mut command = Systemd::command(&setup);
    let gateway = setup.start_by(command.env("WATCHDOG_USEC", "1000").env("WATCHDOG_PID", "1"));
    gateway.stop();
    assert!(has(&systemd.next(), "READY", "1") && has(&systemd.next(), "STOPPING", "1"));
}
