//! Attacks: each is one round, on one gateway, which may be gone at any moment. What a gateway answers is checked by
//! the tests of each attack; here only that it stands it, again and again.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};

use crate::canary::smuggled;
use crate::frames;
use crate::support::{Random, head};

/// Target of an attack.
pub struct Target<'a> {
    pub address: SocketAddr,
    pub admin: SocketAddr,
    pub key: &'a str,
}

type Attack = fn(&Target<'_>, &mut Random);

pub const ALL: [Attack; 10] = [
    malformed,
    mutated,
    unknown_keys,
    stalled,
    slow_readers,
    broken_uploads,
    failing_upstream,
    floods_of_frames,
    rapid_reset,
    admin_listener,
];

/// Pause of a client that cannot connect, or has done its worst.
const PAUSE: Duration = Duration::from_millis(50);
/// Time for which an attacker listens.
const PATIENCE: Duration = Duration::from_secs(2);

fn connect(address: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect(address).ok();
    if stream.is_none() {
        std::thread::sleep(PAUSE);
    }
    let stream = stream?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    Some(stream)
}

/// Sends bytes on a connection of their own, and reads what comes back.
fn send(address: SocketAddr, bytes: &[u8]) {
    let Some(mut stream) = connect(address) else { return };
    // An error says that the gateway has had enough.
    stream.write_all(bytes).ok();
    stream.shutdown(std::net::Shutdown::Write).ok();
    stream.take(1 << 16).read_to_end(&mut Vec::new()).ok();
}

fn malformed(target: &Target<'_>, _: &mut Random) {
    for request in smuggled(target.key) {
        send(target.address, request.as_bytes());
    }
}

/// Requests with a few bytes that are changed, taken out or put in.
fn mutated(target: &Target<'_>, random: &mut Random) {
    const BYTES: &[u8] = b"\0\r\n\t ,;:/%\"\x7f\xff0A";
    let chunked = head("POST", "/a?b", target.key, &[("Transfer-Encoding", "chunked")], 0) + "3\r\nabc\r\n0\r\n\r\n";
    let sized = head("POST", "/", target.key, &[("Expect", "100-continue")], 5) + "hello";
    let mut bytes = [chunked, sized, head("GET", "/", target.key, &[], 0)].concat().into_bytes();
    for _ in 0..=random.below(4) {
        let at = random.index(bytes.len());
        let byte = BYTES[random.index(BYTES.len())];
        match random.below(3) {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => drop(bytes.remove(at)),
        }
    }
    send(target.address, &bytes);
}

fn unknown_keys(target: &Target<'_>, random: &mut Random) {
    let Some(mut stream) = connect(target.address) else { return };
    for _ in 0..100 {
        let key = format!("sk_live_{:016x}{:016x}{:016x}", random.number(), random.number(), random.number());
        if stream.write_all(head("GET", "/", &key, &[], 0).as_bytes()).is_err() {
            return;
        }
        if stream.read(&mut [0; 4096]).is_ok_and(|read| read == 0) {
            return;
        }
    }
}

/// Connections that send nothing, half a head, or half a body.
fn stalled(target: &Target<'_>, _: &mut Random) {
    let whole = head("POST", "/", target.key, &[], 100);
    let said = ["", &whole[..whole.len() / 2], &format!("{whole}half")].map(|said| said.as_bytes().to_vec());
    let mut open = Vec::new();
    for number in 0..60 {
        let Some(mut stream) = connect(target.address) else { break };
        stream.write_all(&said[number % said.len()]).ok();
        open.push(stream);
    }
    std::thread::sleep(PATIENCE);
}

/// Clients that request much and read little.
fn slow_readers(target: &Target<'_>, _: &mut Random) {
    let mut open = Vec::new();
    for _ in 0..10 {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        if socket.connect(&target.address.into()).is_err() {
            break;
        }
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(head("GET", "/large", target.key, &[], 0).as_bytes()).ok();
        stream.read_exact(&mut [0; 100]).ok();
        open.push(stream);
    }
    std::thread::sleep(PATIENCE);
}

/// Uploads that are reset in the middle.
fn broken_uploads(target: &Target<'_>, _: &mut Random) {
    for length in [10, 100_000, 10_000_000] {
        let Some(mut stream) = connect(target.address) else { return };
        stream.write_all(head("POST", "/", target.key, &[], length).as_bytes()).ok();
        stream.write_all(&vec![b'x'; length / 2]).ok();
        std::thread::sleep(PAUSE);
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// Requests that the upstream answers with garbage, in part, or not at all.
fn failing_upstream(target: &Target<'_>, _: &mut Random) {
    for path in ["/break", "/garbage", "/close"] {
        send(target.address, head("GET", path, target.key, &[], 0).as_bytes());
    }
    std::thread::sleep(PAUSE);
}

/// Sends frames until the gateway ends the connection, or a hundred thousand were sent.
fn flood(target: &Target<'_>, mut more: impl FnMut(u32) -> Vec<u8>) {
    let Some(mut stream) = connect(target.address) else { return };
    let settings = frames::frame(frames::SETTINGS, 0, 0, &[]);
    stream.write_all(&[frames::PREFACE, &settings].concat()).ok();
    let mut reader = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        // Ends with the connection.
        scope.spawn(move || std::io::copy(&mut reader, &mut std::io::sink()).ok());
        let mut sent = 0;
        while sent < 100_000 && stream.write_all(&(sent..sent + 100).flat_map(&mut more).collect::<Vec<_>>()).is_ok() {
            sent += 100;
        }
        stream.shutdown(std::net::Shutdown::Both).ok();
    });
}

fn floods_of_frames(target: &Target<'_>, random: &mut Random) {
    let open = frames::head(1, "POST", "/", target.key, &[], false);
    let settings = [0, 4, 0, 0, 255, 255].repeat(100);
    let floods = [
        frames::frame(frames::PING, 0, 0, &[0; 8]),
        frames::frame(frames::PING, frames::ACK, 0, &[0; 8]),
        frames::frame(frames::SETTINGS, 0, 0, &settings),
        frames::frame(frames::PRIORITY, 0, 0x7fff_0001, &[0, 0, 0, 0, 1]),
        frames::frame(frames::DATA, 0, 1, &[]),
        frames::frame(frames::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        frames::frame(frames::CONTINUATION, 0, 1, &frames::field("x", "y")),
        frames::frame(0xee, 0, 0, b"x"),
    ];
    let frame = &floods[random.index(floods.len())];
    flood(target, |number| if number == 0 { open.clone() } else { frame.clone() });
}

fn rapid_reset(target: &Target<'_>, _: &mut Random) {
    flood(target, |number| {
        let stream = number * 2 + 1;
        let reset = frames::frame(frames::RST_STREAM, 0, stream, &frames::CANCEL.to_be_bytes());
        [frames::request(stream, "GET", "/", target.key), reset].concat()
    });
    // Each round leaves up to a thousand records.
    std::thread::sleep(PATIENCE);
}

/// The admin listener, which others than Prometheus may reach.
fn admin_listener(target: &Target<'_>, random: &mut Random) {
    send(target.admin, head("GET", "/metrics", "", &[], 0).as_bytes());
    let garbage: Vec<u8> = (0..1000).map(|_| random.number() as u8).collect();
    send(target.admin, &garbage);
    std::thread::sleep(PAUSE);
}
