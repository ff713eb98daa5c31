//! Gateway under attack: its memory, and the latency of an honest client meanwhile.
//!
//! To print the figures: `cargo test --release --test process -- --nocapture --test-threads 1 hostile`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::support::{Client, KEYGATE, Running, Setup, Upstream, eventually, head, is_strict};

const GIBIBYTE: u64 = 1 << 30;
const MOST_MEMORY: u64 = 256 << 20;
/// Connections of each kind of attack.
const MANY: usize = 1000;
/// Requests of the honest client in one round, enough for a 99th percentile.
const ROUND: usize = 300;

/// Limits far above what the test needs, so that only the tested resource runs out.
const PATIENT: &str = "
limits: { key: { requests: 1000000, per: 1s }, org: { concurrent: 10000 } }
timeouts: { lame_duck: 0s, first_byte: 1h, head: 1h, body_idle: 1h, write_idle: 1h, keep_alive: 1h,
            response: 1h, response_idle: 1h }
http: { max_connections_per_address: 10000, min_body_rate: 0 }
";

/// Starts a gateway with a limit of file descriptors.
fn start(setup: &Setup, descriptors: u32) -> Running {
    let mut command = Command::new("prlimit");
    setup.start_by(command.arg(format!("--nofile={descriptors}")).arg(KEYGATE))
}

/// Raises the limit of this process, which holds the client's end of each connection.
fn raise_own_limit() {
    let own = ["--pid", &std::process::id().to_string(), "--nofile=16384:"].map(str::to_owned);
    let raised = Command::new("prlimit").args(own).status();
    assert!(raised.is_ok_and(|status| status.success()), "prlimit (util-linux) must be able to set `ulimit -n 16384`");
}

/// Upstream that answers `/endless` with 1 GiB and all other paths with `ok`, and counts the bytes that it sent.
fn upstream() -> (Upstream, Arc<AtomicU64>) {
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    let upstream = Upstream::answering(move |request, stream| {
        if request.path() != "/endless" {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok();
            return;
        }
        stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {GIBIBYTE}\r\n\r\n").as_bytes()).ok();
        while let Ok(sent) = stream.write(&[0; 65536]) {
            count.fetch_add(sent as u64, Ordering::Relaxed);
        }
    });
    (upstream, sent)
}

/// Opens connections that send nothing, half a head, or half a body.
fn stalled(setup: &Setup, key: &str) -> Vec<TcpStream> {
    let whole = head("POST", "/", key, &[], 100);
    let said = ["", &whole[..whole.len() / 2], &format!("{whole}half")].map(|said| said.as_bytes().to_vec());
    let connect = |number: usize| {
        let mut stream = TcpStream::connect(setup.address).unwrap();
        stream.write_all(&said[number % said.len()]).unwrap();
        stream
    };
    (0..MANY).map(connect).collect()
}

/// Client that requests 1 GiB and reads only its first bytes.
fn slow_reader(address: SocketAddr, key: &str) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(head("GET", "/endless", key, &[], 0).as_bytes()).unwrap();
    let mut answer = [0; 15];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    stream
}

/// The 99th percentile of an honest client's latency.
fn p99(client: &mut Client, key: &str) -> Duration {
    let mut waits: Vec<Duration> = (0..ROUND)
        .map(|_| {
            let began = Instant::now();
            assert_eq!(client.get("/", key).status, 200);
            began.elapsed()
        })
        .collect();
    waits.sort();
    waits[ROUND * 99 / 100]
}

/// The median of several rounds, because other work on the machine may disturb one of them.
fn median_p99(client: &mut Client, key: &str) -> Duration {
    let mut rounds: Vec<Duration> = (0..7).map(|_| p99(client, key)).collect();
    rounds.sort();
    rounds[3]
}

/// Waits until all buffers between upstream and client are full.
fn settled(sent: &AtomicU64) {
    let mut before = u64::MAX;
    while sent.load(Ordering::Relaxed) != before {
        before = sent.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn thousand_stalled_and_thousand_slow_clients_cost_bounded_memory() {
    raise_own_limit();
    let (upstream, sent) = upstream();
    let (setup, key) = Setup::new(upstream.address, PATIENT).and_key();
    let gateway = start(&setup, 8192);
    let mut honest = setup.client();
    let alone = median_p99(&mut honest, &key);
    let idle = gateway.peak_memory();

    let stalled = stalled(&setup, &key);
    let readers: Vec<_> = (0..MANY).map(|_| slow_reader(setup.address, &key)).collect();
    settled(&sent);
    let attacked = median_p99(&mut honest, &key);
    assert_eq!(setup.client().get("/", &key).status, 200, "new connections are served");
    let peak = gateway.peak_memory();
    drop((stalled, readers));
    let after = median_p99(&mut honest, &key);

    println!("peak memory: {} MiB, {} MiB before the attack", peak >> 20, idle >> 20);
    println!("p99 of an honest client: alone {alone:?}, meanwhile {attacked:?}, afterwards {after:?}");
    if is_strict() {
        let most = alone.max(Duration::from_millis(1)) * 10;
        assert!(attacked < most, "p99 of an honest client: {attacked:?}, {alone:?} without the attack");
    }
    assert!(peak < MOST_MEMORY, "{} MiB", peak >> 20);
    gateway.stop();
    setup.ok(&["audit", "verify"]);
}

/// The processor time that the process has used.
fn processor_time(gateway: &Running) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", gateway.id())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // User and system time, the 14th and 15th of all fields, in hundredths of a second.
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

#[test]
fn accept_pauses_without_file_descriptors_and_resumes() {
    const DESCRIPTORS: u32 = 64;
    let (upstream, _) = upstream();
    let (setup, key) = Setup::new(upstream.address, &format!("{PATIENT}workers: 1\n")).and_key();
    let gateway = start(&setup, DESCRIPTORS);
    let mut early = setup.client();
    assert_eq!(early.get("/", &key).status, 200);
    let begun = Instant::now();
    let silent: Vec<_> = (0..DESCRIPTORS).map(|_| TcpStream::connect(setup.address).unwrap()).collect();
    let descriptors = format!("/proc/{}/fd", gateway.id());
    eventually("the gateway has no file descriptor left", || {
        std::fs::read_dir(&descriptors).unwrap().count() >= DESCRIPTORS as usize
    });
    let before = processor_time(&gateway);
    std::thread::sleep(Duration::from_secs(1));
    let used = processor_time(&gateway).saturating_sub(before);
    assert!(used < Duration::from_millis(400), "{used:?} of a second: it spins");
    assert_eq!(early.get("/", &key).status, 200, "open connections are served");
    let log = std::fs::read_to_string(setup.path().join("stderr")).unwrap();
    let lines = log.matches("cannot accept connections").count();
    assert!((1..=begun.elapsed().as_secs() + 1).contains(&(lines as u64)), "{lines} lines: one a second\n{log}");
    drop(silent);
    assert_eq!(setup.client().get("/", &key).status, 200, "new connections are accepted again");
    gateway.stop();
}
