//! A flood of a public route beside requests with a key: what it costs them in time.
//!
//! One client sends requests with a key at a steady rate. In every other round, another address sends 10,000 requests
//! to a public route meanwhile, of which nearly all are refused. The rounds are interleaved, quiet and flooded in turn,
//! and the ratio of the 99th percentiles is taken within each pair. The flood is sent by a process that yields to all
//! others, since elsewhere it comes from another machine.
//!
//! `cargo bench --bench flood` measures (`-- --rounds N`: pairs, 7 by default). Without `--bench`, as under `cargo
//! test`, it only tries itself out.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking, and has no public API")]

#[path = "../../tests/support/mod.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the tests need more of it")]
mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use support::{Gateway, Upstream};

const BLOCKS: &str = "limits: { key: { requests: 1000000000, per: 1s } }\n\
                      routes: [{ name: public, path: /public, access: public }, { name: rest, path: '/**' }]\n";

/// Argument of the process that floods the gateway; the gateway's address and the number of requests follow.
const FLOOD: &str = "--flood";
const FLOOD_PAUSE: Duration = Duration::from_micros(500);

/// Requests of one round, and the pause between two of them.
#[derive(Clone, Copy)]
struct Pace {
    requests: u32,
    pause: Duration,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, name, address, requests] = &arguments[..]
        && name == FLOOD
    {
        let pace = Pace { requests: requests.parse().unwrap(), pause: FLOOD_PAUSE };
        return println!("{}", run_flood(address.parse().unwrap(), pace));
    }
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let rounds =
        arguments.iter().position(|argument| argument == "--rounds").map(|at| arguments[at + 1].parse().unwrap());
    let rounds: usize = if is_bench { rounds.unwrap_or(7) } else { 1 };
    let share = if is_bench { 1 } else { 100 };
    // Both take five seconds.
    let keyed = Pace { requests: 5_000 / share, pause: Duration::from_millis(1) };
    let flood = 10_000 / share;

    let upstream = Upstream::start();
    let gateway = Gateway::with(&[upstream.address], BLOCKS);
    let address = gateway.address;
    let key = gateway.key().text;
    let mut ratios = Vec::new();
    for round in 1..=rounds {
        let quiet = percentile(run_keyed(address, &key, keyed));
        let flooding = start_flood(address, flood);
        let flooded = percentile(run_keyed(address, &key, keyed));
        let refused = String::from_utf8(flooding.wait_with_output().unwrap().stdout).unwrap();
        let refused: u32 = refused.trim().parse().unwrap();
        println!("round {round}: p99 {quiet:.0} us quiet, {flooded:.0} us in a flood of {} ({refused} refused)", flood);
        ratios.push(flooded / quiet);
    }
    ratios.sort_by(f64::total_cmp);
    let (first, last) = (ratios[0], ratios[ratios.len() - 1]);
    println!("p99 in the flood, to that without: {:.2} ({first:.2} to {last:.2})", ratios[ratios.len() / 2]);
}

/// Starts this program as one that floods the gateway.
fn start_flood(gateway: SocketAddr, requests: u32) -> Child {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(program).arg(FLOOD).arg(gateway.to_string()).arg(requests.to_string());
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// Sends requests with a key, and returns their times in microseconds.
fn run_keyed(gateway: SocketAddr, key: &str, pace: Pace) -> Vec<f64> {
    let mut stream = TcpStream::connect(gateway).unwrap();
    stream.set_nodelay(true).unwrap();
    let head = format!("GET /a HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {key}\r\n\r\n");
    let mut times = Vec::new();
    paced(pace, || {
        let begun = Instant::now();
        stream.write_all(head.as_bytes()).unwrap();
        assert_eq!(read_answer(&mut stream), Some((200, false)));
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    });
    times
}

/// Sends requests to the public route from another address, and returns how many were refused.
fn run_flood(gateway: SocketAddr, pace: Pace) -> u32 {
    let mut stream = connect_from_another_address(gateway);
    let mut refused = 0;
    paced(pace, || {
        stream.write_all(b"GET /public HTTP/1.1\r\nHost: g\r\n\r\n").unwrap();
        let (status, closes) = read_answer(&mut stream).unwrap();
        refused += u32::from(status == 429);
        if closes {
            stream = connect_from_another_address(gateway);
        }
    });
    refused
}

fn connect_from_another_address(gateway: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    socket.connect(&gateway.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true).unwrap();
    stream
}

/// Calls a function once for each request, at the times of the pace; late ones follow at once.
fn paced(pace: Pace, mut send: impl FnMut()) {
    let begun = Instant::now();
    for number in 0..pace.requests {
        std::thread::sleep((begun + pace.pause * number).saturating_duration_since(Instant::now()));
        send();
    }
}

/// Reads an answer: its status, and whether it ends the connection.
fn read_answer(stream: &mut TcpStream) -> Option<(u16, bool)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
        if body.len() >= length {
            return Some((head[9..12].parse().unwrap(), head.contains("connection: close")));
        }
    }
}

/// The 99th percentile.
fn percentile(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}
