//! An admin socket that stands between the two processes of a hand-over, and acts when a certain message comes.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

use crate::support::{KEYGATE, Setup};

/// Files of one message at most.
const FILES: usize = 253;

/// Starts a process that takes over through the interceptor, with its log in the file `new.log`. In place of passing
/// `message` on, `act` is called, and then both connections are closed.
pub(super) fn start_new_process(setup: &Setup, message: &'static str, act: impl FnOnce()) -> Child {
    let listener = UnixListener::bind(setup.path().join("intercepted.sock")).unwrap();
    let config = setup.path().join("new.yaml");
    std::fs::write(&config, setup.text().replace("admin.sock", "intercepted.sock")).unwrap();
    let log = std::fs::File::create(setup.path().join("new.log")).unwrap();
    let mut command = Command::new(KEYGATE);
    command.args(["serve", "--replace", "--config"]).arg(config).stdin(Stdio::null()).stderr(log);
    let child = command.spawn().unwrap();
    let new = listener.accept().unwrap().0;
    let old = UnixStream::connect(setup.path().join("admin.sock")).unwrap();
    std::thread::scope(|scope| {
        let back = scope.spawn(|| pass_until(&old, &new, message));
        let to = scope.spawn(|| pass_until(&new, &old, message));
        // One of them has met the message, and has closed what the other one reads from.
        assert!(to.join().unwrap() | back.join().unwrap(), "{message} has come");
    });
    act();
    child
}

/// Passes messages and their files on until one has come. Returns whether it has; the other direction ends then.
fn pass_until(from: &UnixStream, to: &UnixStream, message: &str) -> bool {
    let quoted = format!("\"{message}\"");
    let mut bytes = vec![0; 64 << 10];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = rustix::net::recvmsg(from, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
        let read = received.map_or(0, |received| received.bytes);
        let rights = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        });
        let files: Vec<OwnedFd> = rights.flatten().collect();
        if read == 0 {
            return false;
        }
        if bytes[..read].windows(quoted.len()).any(|window| window == quoted.as_bytes()) {
            // The connections stay open: their processes notice nothing yet.
            from.shutdown(Shutdown::Read).unwrap();
            to.shutdown(Shutdown::Read).unwrap();
            return true;
        }
        let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(files.is_empty() || control.push(SendAncillaryMessage::ScmRights(&files)));
        let sent = rustix::net::sendmsg(to, &[IoSlice::new(&bytes[..read])], &mut control, SendFlags::empty());
        assert_eq!(sent.unwrap(), read);
    }
}
