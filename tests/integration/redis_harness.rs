//! The harness of Redis tests: servers, Clusters, sentinels and proxies behave as the tests assume, and end with them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::await_refusal;
use crate::support::redis::{Certificates, Cluster, Hole, Proxy, Redis, Sentinels};
use crate::support::until;

#[test]
fn server_answers_and_is_gone_when_dropped() {
    let redis = Redis::start();
    let process = PathBuf::from(format!("/proc/{}", redis.id()));
    assert!(process.exists());
    assert_eq!(redis.info("server", "tcp_port"), redis.port().to_string());
    let mut connection = ::redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    ::redis::cmd("SET").arg("name").arg("value").exec(&mut connection).unwrap();
    assert_eq!(redis.cli::<String>(&["GET", "name"]), "value");
    assert!(redis.try_cli::<i64>(&["INCR", "name"]).is_err());
    drop(redis);
    assert!(!process.exists());
}

#[test]
fn servers_run_beside_each_other() {
    let servers = Redis::options().start_many(8);
    for (number, redis) in servers.iter().enumerate() {
        redis.cli::<()>(&["SET", "number", &number.to_string()]);
    }
    for (number, redis) in servers.iter().enumerate() {
        assert_eq!(redis.cli::<usize>(&["GET", "number"]), number);
    }
}

#[test]
fn stopped_server_resumes_with_its_data() {
    let redis = Redis::start();
    redis.cli::<()>(&["SET", "name", "value"]);
    redis.stop_process();
    assert!(!redis.is_running());
    redis.resume();
    assert_eq!(redis.cli::<String>(&["GET", "name"]), "value");
}

#[test]
fn server_keeps_only_what_is_on_disk() {
    let (lasting, fleeting) = (Redis::options().appendonly().start(), Redis::start());
    for redis in [&lasting, &fleeting] {
        redis.cli::<()>(&["SET", "name", "value"]);
        redis.kill();
        assert!(redis.try_cli::<String>(&["PING"]).is_err());
        redis.restart();
    }
    assert_eq!(lasting.cli::<Option<String>>(&["GET", "name"]).as_deref(), Some("value"));
    assert_eq!(fleeting.cli::<Option<String>>(&["GET", "name"]), None);
    lasting.shutdown();
    lasting.restart_empty();
    assert_eq!(lasting.cli::<i64>(&["DBSIZE"]), 0);
}

#[test]
fn statistics_are_unchanged_by_reading_them() {
    let redis = Redis::start();
    redis.cli::<()>(&["SET", "name", "value"]);
    redis.reset_stats();
    assert_eq!((redis.total_commands(), redis.command_calls("evalsha")), (0, (0, 0)));
    redis.cli::<()>(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "name"]);
    assert_eq!(redis.command_calls("eval").0, 1);
    assert_eq!(redis.total_commands(), 2);
    assert_eq!(redis.total_commands(), 2);
}

#[test]
fn password_is_required() {
    let redis = Redis::options().password("open sesame").start();
    assert_eq!(redis.cli::<String>(&["PING"]), "PONG");
    let stranger = ::redis::Client::open(format!("redis://{}", redis.address())).unwrap();
    let reply = ::redis::cmd("PING").exec(&mut stranger.get_connection().unwrap());
    assert_eq!(reply.unwrap_err().code(), Some("NOAUTH"));
}

#[test]
fn cluster_shares_hash_slots_and_moves_them() {
    let cluster = Cluster::start(3, 0);
    let [first, second, third] = cluster.primaries()[..] else { panic!("three primaries") };
    let ends = [0, 5_460, 5_461, 10_921, 10_922, 16_383].map(|slot| cluster.primary_of(slot).port());
    assert_eq!(ends, [first, first, second, second, third, third].map(Redis::port));

    let slot = cluster.slot_of("{tag}");
    let from = cluster.primary_of(slot);
    let to = if from.port() == first.port() { second } else { first };
    from.cli::<()>(&["SET", "{tag}one", "1"]);
    from.cli::<()>(&["SET", "{tag}two", "2"]);
    let refused = |node: &Redis, key: &str| node.try_cli::<i64>(&["GET", key]).unwrap_err().code().unwrap().to_owned();
    assert_eq!(refused(to, "{tag}one"), "MOVED");
    cluster.begin_move(slot, from, to);
    assert_eq!(cluster.move_keys(slot, from, to, 1), 1);
    let (here, there) = if from.try_cli::<i64>(&["GET", "{tag}one"]).is_ok() { ("one", "two") } else { ("two", "one") };
    assert_eq!(refused(from, &format!("{{tag}}{there}")), "ASK");
    assert!(from.try_cli::<i64>(&["GET", &format!("{{tag}}{here}")]).is_ok());
    assert_eq!(cluster.move_keys(slot, from, to, usize::MAX), 1);
    cluster.end_move(slot, from, to);
    assert_eq!(cluster.primary_of(slot).port(), to.port());
    assert_eq!(to.cli::<Vec<i64>>(&["MGET", "{tag}one", "{tag}two"]), [1, 2]);
    assert_eq!(refused(from, "{tag}one"), "MOVED");
}

#[test]
fn cluster_replica_takes_over() {
    let cluster = Cluster::start(3, 1);
    let old = cluster.primary_of(0);
    assert_eq!(cluster.replicas_of(old).len(), 1);
    old.kill();
    let new = cluster.until_other_primary(0, old);
    cluster.until_ok();
    assert_eq!(cluster.primary_of(0).port(), new.port());
    assert_eq!(cluster.primaries().len(), 3);
}

#[test]
fn sentinels_replace_a_failed_primary() {
    let sentinels = Sentinels::start();
    sentinels.primary().cli::<()>(&["SET", "name", "value"]);
    assert_eq!(sentinels.primary().cli::<u64>(&["WAIT", "2", "5000"]), 2);
    let old = sentinels.failover();
    let new = sentinels.until_other_primary(old);
    assert_eq!(new.cli::<String>(&["GET", "name"]), "value");
    assert_eq!(sentinels.primary().port(), new.port());
}

#[test]
fn clusters_and_sentinels_are_isolated() {
    let closed = Redis::options().password("secret").tls(&Certificates::generate());
    let (cluster, sentinels) = std::thread::scope(|scope| {
        let cluster = scope.spawn(|| Cluster::start_with(closed.clone(), 2, 0));
        let sentinels = scope.spawn(|| Sentinels::start_with(closed.clone()));
        (cluster.join().unwrap(), sentinels.join().unwrap())
    });
    let slot = cluster.slot_of("name");
    let (from, to) = (cluster.primary_of(slot), cluster.primary_of(16_383 - slot));
    from.cli::<()>(&["SET", "name", "value"]);
    cluster.move_slot(slot, from, to);
    assert_eq!(cluster.primary_of(slot).cli::<String>(&["GET", "name"]), "value");
    let old = sentinels.failover();
    sentinels.until_other_primary(old);
}

#[test]
fn tls_requires_a_client_certificate() {
    let certificates = Certificates::generate();
    let redis = Redis::options().tls(&certificates).start();
    assert_eq!(redis.url(), format!("rediss://{}", redis.address()));
    assert_eq!(ping(&redis, &certificates, Some(&certificates)).unwrap(), "+PONG\r\n");
    assert!(ping(&redis, &certificates, None).is_err());
    assert!(ping(&redis, &Certificates::generate(), Some(&certificates)).is_err());
    let open = Redis::options().tls(&certificates).arg("tls-auth-clients", "no").start();
    assert_eq!(ping(&open, &certificates, None).unwrap(), "+PONG\r\n");
}

/// Pings over TLS. `trusted` certifies the server, `own` the client.
fn ping(redis: &Redis, trusted: &Certificates, own: Option<&Certificates>) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted.ca()).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match own.map(Certificates::client) {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = vec![CertificateDer::from_pem_file(chain).unwrap()];
            config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap()
        }
    };
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(redis.address())?);
    stream.write_all(b"PING\r\n")?;
    let mut reply = [0; 7];
    stream.read_exact(&mut reply)?;
    Ok(String::from_utf8(reply.to_vec()).unwrap())
}

#[test]
fn proxy_delays_replies_but_keeps_their_rate() {
    const DELAY: Duration = Duration::from_millis(500);
    const COMMANDS: usize = 50;
    let redis = Redis::start();
    let proxy = Proxy::to(redis.address());
    let mut client = connect(&proxy);
    proxy.delay(DELAY);
    let began = Instant::now();
    for _ in 0..COMMANDS {
        client.write_all(b"PING\r\n").unwrap();
        // Replies that came together would be delayed as one.
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(read(&mut client, COMMANDS * 7), "+PONG\r\n".repeat(COMMANDS));
    let took = began.elapsed();
    // Delayed one after the other, the replies would take the delay each.
    assert!(took >= DELAY && took < DELAY * COMMANDS as u32 / 2, "{took:?}");
}

#[test]
fn proxy_holds_what_it_does_not_swallow() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.address());
    let (mut held, mut lost, mut later) = (connect(&proxy), connect(&proxy), connect(&proxy));
    proxy.black_hole_answers(Hole::Hold);
    held.write_all(b"INCR held\r\nINCR held\r\n").unwrap();
    until("the commands have run", || redis.cli::<Option<i64>>(&["GET", "held"]).filter(|count| *count == 2));
    assert!(is_silent(&mut held));
    proxy.heal();
    assert_eq!(read(&mut held, 8), ":1\r\n:2\r\n");

    proxy.black_hole(Hole::Swallow);
    lost.write_all(b"INCR lost\r\n").unwrap();
    until("the command is lost", || (proxy.lost() == 1).then_some(()));
    proxy.heal();
    later.write_all(b"INCR later\r\n").unwrap();
    assert_eq!(read(&mut later, 4), ":1\r\n");
    lost.write_all(b"INCR lost\r\n").unwrap();
    assert!(is_silent(&mut lost));
    assert_eq!(redis.cli::<Option<i64>>(&["GET", "lost"]), None);
}

#[test]
fn proxy_cuts_and_refuses_connections() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.address());
    let mut first = connect(&proxy);
    first.write_all(b"PING\r\n").unwrap();
    assert_eq!(read(&mut first, 7), "+PONG\r\n");
    proxy.refuse(true);
    assert_eq!(connect(&proxy).read(&mut [0]).unwrap_or(0), 0);
    first.write_all(b"PING\r\n").unwrap();
    assert_eq!(read(&mut first, 7), "+PONG\r\n");
    proxy.cut();
    assert_eq!(first.read(&mut [0]).unwrap(), 0);
    proxy.refuse(false);
    let mut second = connect(&proxy);
    second.write_all(b"QUIT\r\n").unwrap();
    assert_eq!(read(&mut second, 5), "+OK\r\n");
    assert_eq!(second.read(&mut [0]).unwrap(), 0);
    drop(second);
    until("the connection is over", || (proxy.connections() == 0).then_some(()));
    assert_eq!(proxy.accepted(), 2);
    let address = proxy.address();
    drop(proxy);
    await_refusal(address);
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

fn read(stream: &mut TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Returns whether nothing is received for a tenth of a second.
fn is_silent(stream: &mut TcpStream) -> bool {
    let usual = stream.read_timeout().unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let silent = stream.read(&mut [0]).is_err();
    stream.set_read_timeout(usual).unwrap();
    silent
}
