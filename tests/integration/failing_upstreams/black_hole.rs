//! Endpoints that answer no attempt to connect, as behind a firewall that drops packets.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use super::checks::with_blocks;
use super::{PLENTY, ejections, labelled, responding};
use crate::support::hyper_upstream::ok;
use crate::support::{
    Answer, Client, Gateway, HyperOptions, HyperUpstream, eventually, free_address, is_strict, part_of, traffic,
    traffic_of,
};

/// Listener that accepts nothing, and whose queue of connections is full: it answers no attempt to connect.
pub struct BlackHole {
    pub address: SocketAddr,
    _listener: socket2::Socket,
    _queued: Vec<socket2::Socket>,
}

impl BlackHole {
    pub fn start() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let queued = (0..4).map(|_| {
            let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            client.set_nonblocking(true).unwrap();
            client.connect(&address.into()).ok();
            client
        });
        let queued = queued.collect();
        Self { address, _listener: listener, _queued: queued }
    }
}

/// Endpoint that serves until it becomes a black hole.
struct Vanishing {
    address: SocketAddr,
    listener: TcpListener,
    has_vanished: Arc<AtomicBool>,
    accepted: JoinHandle<Vec<TcpStream>>,
}

impl Vanishing {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, accepting) = (listener.local_addr().unwrap(), listener.try_clone().unwrap());
        let has_vanished = Arc::<AtomicBool>::default();
        let vanished = Arc::clone(&has_vanished);
        let accepted = std::thread::spawn(move || {
            let mut streams = Vec::new();
            while !vanished.load(Ordering::SeqCst) {
                let (stream, _) = accepting.accept().unwrap();
                streams.push(stream.try_clone().unwrap());
                std::thread::spawn(move || serve(stream));
            }
            streams
        });
        Self { address, listener, has_vanished, accepted }
    }

    /// Closes the connections, accepts no more, and fills the queue of those that wait to be accepted. The hole lasts
    /// as long as what is returned.
    fn vanish(self) -> (TcpListener, Vec<TcpStream>) {
        self.has_vanished.store(true, Ordering::SeqCst);
        // The thread ends behind one more connection: what it accepted later would make room in the queue.
        let _last = TcpStream::connect(self.address).unwrap();
        for stream in self.accepted.join().unwrap() {
            stream.shutdown(Shutdown::Both).ok();
        }
        SockRef::from(&self.listener).listen(0).unwrap();
        let mut queued = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&self.address, Duration::from_millis(300)) {
            queued.push(stream);
        }
        (self.listener, queued)
    }
}

fn serve(stream: TcpStream) {
    let (mut reader, mut writer) = (BufReader::new(stream.try_clone().unwrap()), stream);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
        if line == "\r\n" {
            writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok();
        }
        line.clear();
    }
}

/// Time that 99 of 100 answers took at most.
fn p99(answers: &[Answer]) -> Duration {
    let mut times: Vec<Duration> = answers.iter().map(|answer| answer.took).collect();
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// Medians of the 99th percentiles of two gateways, of requests in windows by turns: what slows both is the machine.
fn p99_by_turns(gateways: &[(&Gateway, String); 2]) -> [f64; 2] {
    // The p99 of one window is the tenth largest of a thousand times, which scatters by a half.
    let windows = if is_strict() { 31 } else { 1 };
    let mut seconds = [(); 2].map(|()| Vec::new());
    for _ in 0..windows {
        for ((gateway, key), seconds) in gateways.iter().zip(&mut seconds) {
            let answers = traffic_of(gateway.address, key, 4, 250);
            assert_eq!(part_of(&answers, 200), 1.0);
            seconds.push(p99(&answers).as_secs_f64());
        }
    }
    seconds.map(|mut seconds| {
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    })
}

/// No request waits longer than the time-out of one attempt to connect and one more try, and none after the ejection.
///
/// Of times, only the least one is asserted, the time-out of an attempt: load makes no time shorter. With
/// `KEYGATE_STRICT`, the p99 after the ejection is compared with that of before. A second gateway, all of whose
/// endpoints serve, tells what the machine makes of it.
#[test]
fn black_hole_costs_each_request_one_attempt_at_most_and_nothing_once_it_is_ejected() {
    const CONNECT: Duration = Duration::from_secs(1);
    let (vanishing, good) = (Vanishing::start(), [responding(200, Duration::ZERO), responding(200, Duration::ZERO)]);
    let hole = vanishing.address;
    let addresses = [hole, good[0].address, good[1].address];
    let gateway = Gateway::with(&addresses, &format!("{PLENTY}timeouts: {{ connect: 1s }}\nworkers: 1\n"));
    let key = gateway.key().text;
    let requests = |result: &str| {
        let labels = format!("endpoint=\"{hole}\",result=\"{result}\",upstream=\"default\"");
        gateway.metric(&format!("keygate_upstream_requests_total{{{labels}}}"))
    };
    let control = [(); 3].map(|()| responding(200, Duration::ZERO));
    let control = Gateway::with(&control.each_ref().map(|upstream| upstream.address), &format!("{PLENTY}workers: 1\n"));
    let both = [(&gateway, key.clone()), (&control, control.key().text)];
    traffic_of(gateway.address, &key, 4, 50);
    let before = p99_by_turns(&both);
    let served = requests("ok");
    assert!(served > 0.0, "all three serve");

    let _hole = vanishing.vanish();
    let (up, at_the_others) = (labelled("endpoint_up", hole), || good[0].count() + good[1].count());
    let (mut during, others) = (Vec::new(), at_the_others());
    eventually("it is ejected", || {
        during.extend(traffic_of(gateway.address, &key, 4, 10));
        gateway.metric(&up) == 0.0
    });
    assert_eq!(part_of(&during, 200), 1.0);
    let tried = requests("connect_failed") as usize;
    let waited = during.iter().filter(|answer| answer.took >= CONNECT).count();
    assert!(tried >= 1 && tried <= waited, "{tried} attempts by {waited} requests: no request tries it twice");
    assert_eq!(at_the_others() - others, during.len(), "each is sent once, to another endpoint");
    assert_eq!(requests("ok"), served);
    let longest = during.iter().map(|answer| answer.took).max().unwrap();

    let after = p99_by_turns(&both);
    assert_eq!(requests("connect_failed") as usize, tried, "no request tries it again");
    let [growth, of_control] = [0, 1].map(|gateway| after[gateway] / before[gateway]);
    println!("p99 in seconds: {before:?} before, {after:?} after the ejection; the second is that of the control");
    println!("grown to {growth:.2}, the control's to {of_control:.2}; the longest request took {longest:?}");
    if is_strict() {
        assert!(longest < CONNECT + Duration::from_millis(500), "{longest:?}");
        assert!(growth <= 1.5 * of_control, "{growth}, and {of_control} without a black hole");
    }
}

/// An endpoint that refuses connections is known to be down; of those that do not answer, no more is known than that.
#[test]
fn failure_to_connect_is_a_time_out_only_when_no_endpoint_refuses() {
    let holes = [BlackHole::start(), BlackHole::start()];
    let refusing = [free_address(), free_address()];
    let timed_out = (504, "upstream_timeout");
    let down = (503, "upstream_unavailable");
    for (endpoints, expected) in [
        ([holes[0].address, holes[1].address], timed_out),
        ([refusing[0], refusing[1]], down),
        ([holes[0].address, refusing[0]], down),
        ([refusing[0], holes[0].address], down),
    ] {
        let gateway = Gateway::with(&endpoints, &format!("{PLENTY}timeouts: {{ connect: 300ms }}\nworkers: 1\n"));
        let key = gateway.key().text;
        // In whichever order they are tried.
        for _ in 0..3 {
            let response = Client::connect(gateway.address).get("/", &key);
            assert_eq!((response.status, response.code().as_str()), expected, "{endpoints:?}");
            assert!(response.json()["detail"].as_str().unwrap().contains("not executed"));
        }
    }
}

/// Attempts to connect that requests have made in vain, to all of these endpoints.
fn failed_attempts(gateway: &Gateway, endpoints: &[SocketAddr]) -> usize {
    let of = |endpoint: &SocketAddr| {
        let labels = format!("endpoint=\"{endpoint}\",result=\"connect_failed\",upstream=\"default\"");
        gateway.metric(&format!("keygate_upstream_requests_total{{{labels}}}")) as usize
    };
    endpoints.iter().map(of).sum()
}

/// Also when most of them are known to be unreachable.
#[test]
fn request_has_the_time_of_two_attempts_to_connect_however_many_endpoints_do_not_answer() {
    const CONNECT: Duration = Duration::from_millis(300);
    for protocol in ["http1", "http2"] {
        let holes: Vec<_> = (0..10).map(|_| BlackHole::start()).collect();
        let addresses: Vec<_> = holes.iter().map(|hole| hole.address).collect();
        let blocks = "workers: 1\ntimeouts: { connect: 300ms }\n";
        let gateway = with_blocks(&addresses, &format!("protocol: {protocol}"), blocks);
        let (key, mut before) = (gateway.key().text, 0);
        for number in 0..7 {
            let begun = Instant::now();
            let response = Client::connect(gateway.address).get("/", &key);
            assert_eq!((response.status, response.code().as_str()), (504, "upstream_timeout"), "{protocol}");
            let (took, tried) = (begun.elapsed(), failed_attempts(&gateway, &addresses));
            assert!((1..=2).contains(&(tried - before)), "{protocol}: request {number}: {} attempts", tried - before);
            assert!(!is_strict() || took < 2 * CONNECT + Duration::from_millis(200), "{protocol}: {took:?}");
            before = tried;
        }
    }
}

#[test]
fn request_tries_one_of_the_endpoints_that_are_known_to_be_unreachable() {
    for protocol in ["http1", "http2"] {
        let refusing: Vec<_> = (0..6).map(|_| free_address()).collect();
        let gateway = with_blocks(&refusing, &format!("protocol: {protocol}"), "workers: 1\n");
        let key = gateway.key().text;
        let attempts = || {
            let before = failed_attempts(&gateway, &refusing);
            assert_eq!(Client::connect(gateway.address).get("/", &key).status, 503);
            failed_attempts(&gateway, &refusing) - before
        };
        assert_eq!(attempts(), 6, "{protocol}: none is known to be down, and each refuses at once");
        // The last one is never set aside.
        assert_eq!([(); 5].map(|()| attempts()), [2; 5], "{protocol}");
    }
}

#[test]
fn black_hole_delays_a_request_once() {
    let hole = BlackHole::start();
    // Some hundred requests in a second are as good as thousands, and leave the processor to others.
    let good = [(); 2].map(|()| responding(200, Duration::from_millis(5)));
    let addresses = [hole.address, good[0].address, good[1].address];
    let gateway = Gateway::with(&addresses, &format!("{PLENTY}timeouts: {{ connect: 1s }}\nworkers: 1\n"));
    let key = gateway.key().text;
    let up = labelled("endpoint_up", hole.address);
    let tried = format!(
        "keygate_upstream_requests_total{{endpoint=\"{}\",result=\"connect_failed\",upstream=\"default\"}}",
        hole.address
    );
    eventually("it is found out", || {
        assert_eq!(part_of(&traffic_of(gateway.address, &key, 4, 10), 200), 1.0, "requests go on to another endpoint");
        gateway.metric(&up) == 0.0
    });
    let before = gateway.metric(&tried);
    // Long enough for two probes.
    let answers = traffic(gateway.address, &key, 4, |answers| {
        answers.last().is_some_and(|answer| answer.at > Duration::from_secs(4))
    });
    assert_eq!(part_of(&answers, 200), 1.0);
    assert_eq!(gateway.metric(&tried), before, "only probes try it again");
    assert_eq!(gateway.metric(&up), 0.0);
    assert_eq!(ejections(&gateway, "connect_failures"), 1.0);
}

/// Requests over HTTP/2 that wait for the same connection fail to get it together: none waits for a time-out of its
/// own behind the others'.
#[test]
fn black_hole_costs_each_request_over_http2_one_attempt_at_most() {
    const CLIENTS: usize = 8;
    let (hole, good) = (BlackHole::start(), [(); 2].map(|()| HyperOptions::http2().start(ok)));
    let addresses = [hole.address, good[0].address, good[1].address];
    // In turns, so that several requests come to the black hole at once.
    let upstream = "protocol: http2, balance: { policy: round_robin }";
    let gateway = with_blocks(&addresses, upstream, "workers: 1\ntimeouts: { connect: 1s }\n");
    let key = gateway.key().text;
    let tried = || {
        let labels = format!("endpoint=\"{}\",result=\"connect_failed\",upstream=\"default\"", hole.address);
        gateway.metric(&format!("keygate_upstream_requests_total{{{labels}}}")) as usize
    };
    let answers = traffic_of(gateway.address, &key, CLIENTS, 50);
    assert_eq!(part_of(&answers, 200), 1.0);
    assert!((1..=CLIENTS).contains(&tried()), "{} attempts: one of each client at most", tried());
    assert_eq!(gateway.metric("keygate_timeouts_total{kind=\"upstream_connect\"}"), 1.0, "all waited for the same one");
    assert_eq!(good.iter().map(HyperUpstream::count).sum::<usize>(), answers.len(), "each is sent once");
    assert_eq!(gateway.metric(&labelled("endpoint_up", hole.address)), 0.0);
}
