//! Entries other than names: SRV records, Unix sockets and the watched file. Bounds of connections.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use super::{blocks, endpoints, replicas, request};
use crate::support::hyper_upstream::ok;
use crate::support::{Client, Gateway, HyperOptions, NameServer, Upstream, eventually};

#[test]
fn targets_of_srv_records_are_endpoints_on_their_ports() {
    let dns = NameServer::start(1);
    let ((one, [first]), (two, [second]), (_, [spare])) =
        (replicas(["127.0.0.1"]), replicas(["127.0.0.1"]), replicas(["127.0.0.1"]));
    dns.set("pod.test", &["127.0.0.1"]);
    let spare_port = spare.address.port();
    dns.set_service(
        "_http._tcp.store.test",
        &[(1, one, "pod.test"), (1, two, "pod.test"), (2, spare_port, "pod.test"), (1, one, "gone.test")],
    );
    let (gateway, key) = Gateway::with(&[], &blocks("['srv+http://_http._tcp.store.test']", &dns, "")).and_key();
    endpoints(&gateway, 2);
    request(&gateway, &key.text, 60);
    assert!(first.count() > 0 && second.count() > 0);
    assert_eq!((first.count() + second.count(), spare.count()), (60, 0));
    assert_eq!(first.last().header("host"), Some("store.test"));
}

#[test]
fn weights_of_srv_records_divide_the_requests() {
    let dns = NameServer::start(1);
    let ((one, [first]), (two, [second]), (three, [third])) =
        (replicas(["127.0.0.1"]), replicas(["127.0.0.1"]), replicas(["127.0.0.1"]));
    dns.set("pod.test", &["127.0.0.1"]);
    let weigh = |weights: [u16; 3]| {
        let [a, b, c] = weights;
        let records = [(1, a, one, "pod.test"), (1, b, two, "pod.test"), (1, c, three, "pod.test")];
        dns.set_weighted_service("_http._tcp.store.test", &records);
    };
    weigh([60, 30, 0]);
    // In turns, so that the latencies of a busy machine do not count.
    let entry = "['srv+http://_http._tcp.store.test'], balance: { policy: round_robin }";
    let (gateway, key) = Gateway::with(&[], &blocks(entry, &dns, "")).and_key();
    endpoints(&gateway, 3);
    let counts = || [first.count(), second.count(), third.count()];
    let requests = |count| {
        let before = counts();
        request(&gateway, &key.text, count);
        let after = counts();
        [0, 1, 2].map(|index: usize| after[index] - before[index])
    };
    // The second has a third of them by chance: 300 with a standard deviation of 14. The third has 1 in 1500.
    let [_, second_of_all, third_of_all] = requests(900);
    assert!((230..=370).contains(&second_of_all), "{second_of_all}");
    assert!(third_of_all <= 10, "a weight of 0 is the least part: {third_of_all}");

    weigh([0, 0, 0]);
    eventually("the parts are equal", || requests(30).iter().all(|count| (5..=15).contains(count)));
    // In turns of each worker, and the connection has one worker.
    assert!(requests(300).iter().all(|count| (99..=101).contains(count)), "parts are exact when all are equal");
}

#[test]
fn http2_goes_over_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.sock");
    let upstream = HyperOptions::http2().start_at_path(&path, ok);
    let block = format!("upstream: {{ endpoints: ['unix:{}'], protocol: http2 }}\nworkers: 1\n", path.display());
    let gateway = Gateway::with(&[], &block);
    request(&gateway, &gateway.key().text, 20);
    assert_eq!((upstream.count(), upstream.connections()), (20, 1), "all on one connection");
}

#[test]
fn unix_socket_is_an_endpoint_and_its_connections_are_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let served = std::thread::spawn(move || {
        let mut hosts = Vec::new();
        let (stream, _) = listener.accept().unwrap();
        let (mut reader, mut writer) = (BufReader::new(stream.try_clone().unwrap()), stream);
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap() > 0 {
            if let Some(host) = line.to_lowercase().strip_prefix("host:") {
                hosts.push(host.trim().to_owned());
            }
            if line == "\r\n" {
                writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
            }
            line.clear();
        }
        hosts
    });
    let block = format!("upstream: {{ endpoints: ['unix:{}'] }}\nworkers: 1\n", path.display());
    let (gateway, key) = Gateway::with(&[], &block).and_key();
    request(&gateway, &key.text, 5);
    drop(gateway);
    assert_eq!(served.join().unwrap(), ["localhost"; 5], "all on one connection");
}

#[test]
fn watched_file_is_followed_and_a_wrong_one_changes_nothing() {
    let ((_, [first]), (_, [second])) = (replicas(["127.0.0.1"]), replicas(["127.0.0.1"]));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("endpoints");
    std::fs::write(&file, format!("# one\nhttp://{}\n", first.address)).unwrap();
    let limits = "limits: { key: { requests: 1000000, per: 1s } }\n";
    let block = format!("upstream: {{ endpoints: {{ file: '{}' }} }}\n{limits}", file.display());
    let (gateway, key) = Gateway::with(&[], &block).and_key();
    request(&gateway, &key.text, 5);
    assert_eq!(first.count(), 5);

    std::fs::write(&file, format!("http://{}\n", second.address)).unwrap();
    eventually("requests go to the other endpoint", || {
        request(&gateway, &key.text, 1);
        second.count() > 0
    });
    std::fs::write(&file, "nonsense\n").unwrap();
    let before = first.count();
    // More than the two readings that a change takes.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        request(&gateway, &key.text, 1);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(first.count(), before);
}

#[test]
fn connections_end_after_their_number_of_requests() {
    let upstream = Upstream::start();
    let address = upstream.address;
    let block =
        format!("upstream: {{ endpoints: ['http://{address}'], connections: {{ max_requests: 2 }} }}\nworkers: 1\n");
    let (gateway, key) = Gateway::with(&[], &block).and_key();
    let mut client = Client::connect(gateway.address);
    for _ in 0..10 {
        assert_eq!(client.get("/", &key.text).status, 200);
    }
    assert_eq!(upstream.connections(), 5);
}
