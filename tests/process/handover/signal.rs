//! SIGUSR2, and the notifications to systemd about an upgrade: the main process, and that it is ready.

use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use super::{BLOCKS, Backend, Lineage, Tunnel, signal};
use crate::support::{KEYGATE, Setup, eventually};
use crate::systemd::{Systemd, has, value};

#[test]
fn signal_replaces_the_gateway_and_systemd_follows() {
    let backend = Backend::start();
    let (setup, key) = Setup::new(backend.upstream.address, BLOCKS).and_key();
    let systemd = Systemd::listen(&setup);
    let first = setup.start_by(&mut Systemd::command(&setup));
    assert!(has(&systemd.next(), "READY", "1"));
    let mut lineage = Lineage { setup, first, later: Mutex::default() };
    for _ in 0..2 {
        let replaced = lineage.current();
        let mut tunnel = Tunnel::open(&lineage.setup, &key);
        signal(replaced, "USR2");
        // Of the old process, and of the new one; in either order.
        let messages = [systemd.next(), systemd.next()];
        let main = messages.iter().find_map(|message| value(message, "MAINPID"));
        let main: u32 = main.unwrap_or_else(|| panic!("{messages:?}")).parse().unwrap();
        assert!(messages.iter().any(|message| has(message, "READY", "1")), "{messages:?}");
        assert_ne!(main, replaced);
        // The new process is ready to serve before it serves the admin socket.
        eventually("clients of the admin socket see the new process", || peer(&lineage.setup) == main);
        assert_eq!(process_group(main), main, "a signal to the group of the old process is not for the new one");
        lineage.later.lock().unwrap().push(main);
        tunnel.echo();
        assert_eq!(lineage.setup.client().get("/", &key).status, 200);
        tunnel.close();
        lineage.wait_for_end(replaced);
    }
    // The processes that were replaced have not said that the service stops.
    lineage.setup.write(&lineage.setup.text().replace("lame_duck: 200ms", "lame_duck: 100ms"));
    signal(lineage.current(), "HUP");
    assert!(has(&systemd.next(), "RELOADING", "1"));
    assert!(has(&systemd.next(), "READY", "1"));
    lineage.stop();
    assert!(has(&systemd.next(), "STOPPING", "1"));
    assert_eq!(lineage.outcomes()["completed"], 4);
}

/// A shell that becomes the gateway, whose watchdog is addressed to it by its process id, as by systemd.
const WATCHED: &str = "export WATCHDOG_PID=$$; exec \"$KEYGATE\" \"$@\"";

#[test]
fn new_process_notifies_the_watchdog() {
    let backend = Backend::start();
    let setup = Setup::new(backend.upstream.address, BLOCKS);
    let systemd = Systemd::listen(&setup);
    let mut command = Command::new("sh");
    command.args(["-c", WATCHED, "sh"]).env("KEYGATE", KEYGATE).env("WATCHDOG_USEC", "200000");
    let first = setup.start_by(command.env("NOTIFY_SOCKET", setup.path().join("notify.sock")));
    let mut lineage = Lineage { setup, first, later: Mutex::default() };
    let replaced = lineage.upgrade();
    lineage.wait_for_end(replaced);
    systemd.skip();
    assert!(has(&systemd.next(), "WATCHDOG", "1"));
    lineage.stop();
}

#[test]
fn requests_at_the_old_process_are_decided_while_systemd_reads_nothing() {
    let backend = Backend::start();
    let (setup, key) = Setup::new(backend.upstream.address, BLOCKS).and_key();
    let path = setup.path().join("notify.sock");
    let unread = UnixDatagram::bind(&path).unwrap();
    unread.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let first = setup.start_by(&mut Systemd::command(&setup));
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send_to(b"FULL=1", &path).is_ok() {}
    let mut lineage = Lineage { setup, first, later: Mutex::default() };
    let mut client = lineage.setup.client();
    assert_eq!(client.get("/", &key).status, 200);
    let mut tunnel = Tunnel::open(&lineage.setup, &key);
    let old = lineage.current();
    signal(old, "USR2");
    eventually("the new process serves", || peer(&lineage.setup) != old);
    lineage.later.lock().unwrap().push(peer(&lineage.setup));
    assert_eq!(client.get("/", &key).status, 200);
    tunnel.echo();
    tunnel.close();
    // The old process does not end before systemd can know of the new one.
    let main = format!("MAINPID={}", lineage.current());
    let mut buffer = [0; 4096];
    while !buffer.starts_with(main.as_bytes()) {
        buffer.fill(0);
        unread.recv(&mut buffer).unwrap();
    }
    lineage.wait_for_end(old);
}

fn process_group(process: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // Behind the name of the program: state, parent, group.
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(2).unwrap().parse().unwrap()
}

/// The process that a client of the admin socket sees as its peer.
pub(super) fn peer(setup: &Setup) -> u32 {
    let stream = UnixStream::connect(setup.path().join("admin.sock")).unwrap();
    let peer = rustix::net::sockopt::socket_peercred(&stream).unwrap();
    peer.pid.as_raw_nonzero().get().cast_unsigned()
}

#[test]
fn signal_that_leads_to_no_new_process_is_logged_and_changes_nothing() {
    let backend = Backend::start();
    let (setup, key) = Setup::new(backend.upstream.address, BLOCKS).and_key();
    let mut lineage = Lineage::start(setup);
    let text = lineage.setup.text();
    lineage.setup.write(&text.replace("workers: 2", "workers: 3"));
    signal(lineage.first.id(), "USR2");
    eventually("the end of the upgrade is logged", || {
        lineage.log().contains("the upgrade failed; this gateway goes on as before")
    });
    lineage.setup.write(&text);
    assert_eq!(lineage.setup.client().get("/", &key).status, 200);
    lineage.stop();
}
