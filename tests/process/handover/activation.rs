//! Socket activation: listening sockets that another process has opened, as systemd does.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use super::signal::peer;
use super::{BLOCKS, Backend};
use crate::support::{Client, KEYGATE, Setup};

/// A shell that becomes the gateway, with its standard streams as the sockets that systemd passes from 3 on: so its
/// process id is the one in `LISTEN_PID`. The log is in the file `log`.
const ACTIVATE: &str = r#"
exec 3<&0 4<&1 5<&2 </dev/null >"$LOG" 2>&1
export LISTEN_PID=$$
exec "$KEYGATE" "$@"
"#;

/// A gateway with these sockets, of which there are at most three, under these names.
fn activated(setup: &Setup, sockets: Vec<OwnedFd>, names: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", ACTIVATE, "sh"]).env("KEYGATE", KEYGATE).env("LOG", setup.path().join("log"));
    command.env("LISTEN_FDS", sockets.len().to_string()).env("LISTEN_FDNAMES", names);
    let mut streams = sockets.into_iter().map(Stdio::from);
    command.stdin(streams.next().unwrap());
    command.stdout(streams.next().unwrap_or_else(Stdio::null));
    command.stderr(streams.next().unwrap_or_else(Stdio::null));
    command
}

/// The end of a start with these sockets.
fn fails(setup: &Setup, sockets: Vec<OwnedFd>, names: &str) -> String {
    let mut command = activated(setup, sockets, names);
    let status = command.args(["serve", "--config"]).arg(setup.path().join("keygate.yaml")).status().unwrap();
    assert_eq!(status.code(), Some(1));
    std::fs::read_to_string(setup.path().join("log")).unwrap()
}

#[test]
fn gateway_serves_on_the_sockets_of_systemd_and_leaves_them_open() {
    let backend = Backend::start();
    let (setup, key) = Setup::new(backend.upstream.address, BLOCKS).and_key();
    let config = std::path::absolute(setup.path()).unwrap();
    let listen = TcpListener::bind(setup.address).unwrap();
    let admin = TcpListener::bind(setup.admin).unwrap();
    let socket = UnixListener::bind(config.join("admin.sock")).unwrap();
    for _ in 0..2 {
        // A connection that comes while no gateway runs waits for the next one.
        let mut early = Client::connect(setup.address);
        let sockets: Vec<OwnedFd> = vec![
            listen.try_clone().unwrap().into(),
            admin.try_clone().unwrap().into(),
            socket.try_clone().unwrap().into(),
        ];
        let mut command = activated(&setup, sockets, "listen:admin:admin-socket");
        let child = command.args(["serve", "--config"]).arg(setup.path().join("keygate.yaml")).spawn().unwrap();
        let mut gateway = crate::support::Running::of(child);
        assert_eq!(early.get("/", &key).status, 200);
        assert_eq!(setup.client().get("/", &key).status, 200);
        setup.ok(&["health"]);
        setup.ok(&["org", "list"]);
        assert_eq!(peer(&setup), gateway.id(), "and not the process that has opened the socket");
        gateway.terminate();
        assert_eq!(gateway.wait(), 0);
    }
}

#[test]
fn socket_that_fits_nothing_is_an_error_that_names_it() {
    let backend = Backend::start();
    let setup = Setup::new(backend.upstream.address, BLOCKS);
    let other = || -> OwnedFd { TcpListener::bind("127.0.0.1:0").unwrap().into() };
    let path = setup.path().join("other.sock");
    let unix = || -> OwnedFd { UnixListener::bind(&path).unwrap().into() };
    let text = fails(&setup, vec![other()], "listen");
    assert!(text.contains("it listens on") && text.contains(&setup.address.to_string()), "{text}");
    assert!(fails(&setup, vec![other()], "admin").contains("`admin.address` is"));
    assert!(fails(&setup, vec![other()], "web").contains("FileDescriptorName= must be"));
    assert!(fails(&setup, vec![other()], "admin-socket").contains("no Unix stream socket"));
    assert!(fails(&setup, vec![unix()], "listen").contains("no TCP socket"));
    std::fs::remove_file(&path).unwrap();
    assert!(fails(&setup, vec![unix()], "admin-socket").contains("`admin.socket` is"));
    let client = std::net::TcpStream::connect(TcpListener::bind(setup.address).unwrap().local_addr().unwrap()).unwrap();
    assert!(fails(&setup, vec![client.into()], "listen").contains("does not listen"));
}
