//! A process that speaks the protocol of a hand-over as far as the test wants.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::Lineage;
use crate::support::until;

/// Version of the messages.
pub(super) const VERSION: u32 = 2;
/// Path of the admin socket, for a process that is [`relay`].
const SOCKET: &str = "KEYGATE_TEST_RELAY";

/// A process that speaks the protocol of a hand-over as far as the test wants. It has a process of its own, which the
/// gateway may kill: to the gateway, the peer is whoever has connected.
pub(super) struct Impostor {
    pub(super) stream: UnixStream,
    pub(super) process: Child,
}

/// The process of an impostor: connects to the admin socket, and passes bytes on in both directions, between it and the
/// socket that is its standard input. Files that come with them are closed.
#[test]
#[ignore = "the other tests start it as a process"]
fn relay() {
    let Some(path) = std::env::var_os(SOCKET) else { return };
    let near = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let far = UnixStream::connect(path).unwrap();
    let (mut from_near, mut to_far) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut from_near, &mut to_far));
    // An error says that an end was reset: both close with this process.
    std::io::copy(&mut &far, &mut &near).ok();
    std::process::exit(0);
}

impl Drop for Impostor {
    fn drop(&mut self) {
        // It may have ended already.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Impostor {
    pub(super) fn connect(lineage: &Lineage, version: u32) -> Self {
        let mut impostor = Self::silent(lineage);
        impostor.greet(lineage, version, 999_999_999);
        impostor
    }

    /// A connection on which nothing was said.
    pub(super) fn silent(lineage: &Lineage) -> Self {
        let (mut stream, relayed) = UnixStream::pair().unwrap();
        let mut relay = Command::new(std::env::current_exe().unwrap());
        relay.args(["--exact", "handover::impostor::relay", "--ignored"]).stdin(OwnedFd::from(relayed));
        relay.env(SOCKET, lineage.setup.path().join("admin.sock")).stdout(Stdio::null());
        let process = relay.spawn().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        stream
            .write_all(
                b"POST /v1/handover HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: keygate-handover\r\n\r\n",
            )
            .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        drop(relay);
        Self { stream, process }
    }

    /// Sends the first message, which says that its process has this id.
    pub(super) fn greet(&mut self, lineage: &Lineage, version: u32, pid: u32) {
        let setup = &lineage.setup;
        let identity = serde_json::json!({
            "workers": 2, "listen": [setup.address], "admin": setup.admin,
            "state": setup.path().join("state.db"), "audit": setup.path().join("audit"),
        });
        self.send(&serde_json::json!({
            "version": version, "program": "0", "pid": pid, "replaces": true, "identity": identity,
        }));
    }

    /// Goes on to the point at which the old process has left everything to this one, and waits for it to serve.
    pub(super) fn commit(&mut self) {
        self.send(&"Ready".into());
        self.receive_to("Locks");
        self.send(&"Prepared".into());
        self.receive_to("Commit");
    }

    pub(super) fn send(&mut self, message: &serde_json::Value) {
        let text = message.to_string();
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        // An error says that the other end has given up, which the next message shows.
        self.stream.write_all(&[&length, text.as_bytes()].concat()).ok();
    }

    pub(super) fn receive(&mut self) -> serde_json::Value {
        self.try_receive().unwrap()
    }

    pub(super) fn try_receive(&mut self) -> std::io::Result<serde_json::Value> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut text = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut text)?;
        Ok(serde_json::from_slice(&text).unwrap())
    }

    /// Connects, when the hand-over before has come to its end.
    pub(super) fn offered(lineage: &Lineage) -> Self {
        until("the hand-over before has ended", || {
            let mut impostor = Self::connect(lineage, VERSION);
            let first = impostor.receive();
            if first.get("Refused").is_some() {
                assert!(first.to_string().contains("right now"), "{first}");
                return None;
            }
            impostor.receive_to("Offered");
            Some(impostor)
        })
    }

    /// Receives up to a message.
    pub(super) fn receive_to(&mut self, wanted: &str) {
        loop {
            let message = self.receive();
            if message == wanted {
                return;
            }
            assert!(message.get("Listeners").is_some(), "{message}");
        }
    }
}
