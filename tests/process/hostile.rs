//! A gateway that is attacked: what it needs, and what becomes of an honest client meanwhile.
//!
//! The figures: `cargo test --release --test process -- --nocapture --test-threads 1 hostile`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::support::{Client, KEYGATE, Running, Setup, Upstream, eventually, head};

const GIBIBYTE: u64 = 1 << 30;
const MOST_MEMORY: u64 = 256 << 20;
/// Connections of each kind of attack.
const MANY: usize = 1000;
/// Requests of an honest client, of which one in a hundred may take longer than what is measured.
const ROUND: usize = 300;

/// Nothing runs out but what is tested.
const PATIENT: &str = "
limits: { key: { requests: 1000000, per: 1s }, org: { concurrent: 10000 } }
timeouts: { lame_duck: 0s, first_byte: 1h, head: 1h, body_idle: 1h, write_idle: 1h, keep_alive: 1h, response: 1h, response_idle: 1h }
http: { max_connections_per_address: 10000, min_body_rate: 0 }
";

/// A gateway that may have this many file descriptors.
fn start(setup: &Setup, descriptors: u32) -> Running {
    let mut command = Command::new("prlimit");
    setup.start_by(command.arg(format!("--nofile={descriptors}")).arg(KEYGATE))
}

/// This process, too, has a socket for each end.
fn raise_own_limit() {
    let own = ["--pid", &std::process::id().to_string(), "--nofile=16384:"].map(str::to_owned);
    let raised = Command::new("prlimit").args(own).status();
    assert!(raised.is_ok_and(|status| status.success()), "prlimit (util-linux) must be able to set `ulimit -n 16384`");
}

/// Answers `/endless` with 1 GiB, and everything else with `ok`; counts the bytes it could send.
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

/// Connections that say nothing, half a head, or half a body.
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

/// A client that asks for 1 GiB, and takes the first bytes of it.
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

/// The 99th percentile of what an honest client waits for.
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

/// The median of several rounds: one of them may have met somebody else's work.
fn median_p99(client: &mut Client, key: &str) -> Duration {
    let mut rounds: Vec<Duration> = (0..7).map(|_| p99(client, key)).collect();
    rounds.sort();
    rounds[3]
}

/// Waits until no buffer on the way takes any more.
fn settled(sent: &AtomicU64) {
    let mut before = u64::MAX;
    while sent.load(Ordering::Relaxed) != before {
        before = sent.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn a_thousand_stalled_and_a_thousand_slow_clients_cost_little() {
    raise_own_limit();
    let (upstream, sent) = upstream();
    let setup = Setup::new(upstream.address, PATIENT);
    let key = setup.key();
    let gateway = start(&setup, 8192);
    let mut honest = setup.client();
    let alone = median_p99(&mut honest, &key);
    let idle = gateway.peak_memory();

    let stalled = stalled(&setup, &key);
    let readers: Vec<_> = (0..MANY).map(|_| slow_reader(setup.address, &key)).collect();
    settled(&sent);
    let attacked = median_p99(&mut honest, &key);
    assert_eq!(setup.client().get("/", &key).status, 200, "new connections are served, too");
    let peak = gateway.peak_memory();
    drop((stalled, readers));
    let after = median_p99(&mut honest, &key);

    println!("peak memory: {} MiB, {} MiB before the attack", peak >> 20, idle >> 20);
    println!("p99 of an honest client: alone {alone:?}, meanwhile {attacked:?}, afterwards {after:?}");
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
fn without_file_descriptors_it_waits_and_goes_on() {
    const DESCRIPTORS: u32 = 64;
    let (upstream, _) = upstream();
    let setup = Setup::new(upstream.address, &format!("{PATIENT}workers: 1\n"));
    let key = setup.key();
    let gateway = start(&setup, DESCRIPTORS);
    let mut early = setup.client();
    assert_eq!(early.get("/", &key).status, 200);
    let silent: Vec<_> = (0..DESCRIPTORS).map(|_| TcpStream::connect(setup.address).unwrap()).collect();
    let descriptors = format!("/proc/{}/fd", gateway.id());
    eventually("the gateway has no file descriptor left", || {
        std::fs::read_dir(&descriptors).unwrap().count() >= DESCRIPTORS as usize
    });
    let before = processor_time(&gateway);
    std::thread::sleep(Duration::from_secs(1));
    let used = processor_time(&gateway).saturating_sub(before);
    assert!(used < Duration::from_millis(400), "{used:?} of a second: it spins");
    assert_eq!(early.get("/", &key).status, 200, "who is connected is served");
    drop(silent);
    assert_eq!(setup.client().get("/", &key).status, 200, "accepting goes on");
    gateway.stop();
}
