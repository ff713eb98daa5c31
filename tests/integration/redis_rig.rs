//! The servers that tests run against are what they say, and leave nothing behind.

use std::path::PathBuf;

use crate::redis::{Cluster, Redis, Sentinels};

#[test]
fn a_server_answers_and_is_gone_when_dropped() {
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
fn servers_start_beside_each_other() {
    let servers = Redis::options().start_many(8);
    for (number, redis) in servers.iter().enumerate() {
        redis.cli::<()>(&["SET", "number", &number.to_string()]);
    }
    for (number, redis) in servers.iter().enumerate() {
        assert_eq!(redis.cli::<usize>(&["GET", "number"]), number);
    }
}

#[test]
fn a_stopped_server_goes_on_where_it_was() {
    let redis = Redis::start();
    redis.cli::<()>(&["SET", "name", "value"]);
    redis.stop_process();
    assert!(!redis.is_running());
    redis.resume();
    assert_eq!(redis.cli::<String>(&["GET", "name"]), "value");
}

#[test]
fn only_what_is_on_its_disk_outlives_a_server() {
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
fn looking_at_the_statistics_does_not_change_them() {
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
fn a_password_is_asked_for() {
    let redis = Redis::options().password("open sesame").start();
    assert_eq!(redis.cli::<String>(&["PING"]), "PONG");
    let stranger = ::redis::Client::open(format!("redis://{}", redis.address())).unwrap();
    let asked = ::redis::cmd("PING").exec(&mut stranger.get_connection().unwrap());
    assert_eq!(asked.unwrap_err().code(), Some("NOAUTH"));
}

#[test]
fn a_cluster_shares_slots_and_moves_them() {
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
fn a_replica_takes_over_in_a_cluster() {
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
fn sentinels_replace_a_primary() {
    let sentinels = Sentinels::start();
    sentinels.primary().cli::<()>(&["SET", "name", "value"]);
    assert_eq!(sentinels.primary().cli::<u64>(&["WAIT", "2", "5000"]), 2);
    let old = sentinels.failover();
    let new = sentinels.until_other_primary(old);
    assert_eq!(new.cli::<String>(&["GET", "name"]), "value");
    assert_eq!(sentinels.primary().port(), new.port());
}
