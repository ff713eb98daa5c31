//! Deployments of Redis: Sentinel, Cluster, TLS, passwords; and the effects of a failover.

use std::time::Duration;

use domain::clock;
use domain::key::OrgTag;
use domain::refusal::Refusal;
use platform::tls::{CertificateFiles, ClientSettings};
use state::redis::{Address, Clock, ConnectError, Durability, Login, OpenError, Servers, Settings, Unsuitable};
use state::{Change, ChangeError, Redis as RedisState, State, Unavailable};

use super::fixture::{admit, created, fixture_with_key, refuse, revoke};
use super::redis::{at, settings};
use super::redis_load::{Load, Outcome, PLENTY, Sample};
use super::runtime::{block_on, enter};
use crate::state_contract::redis::enter_with_server;
use crate::support::decide::decide_request;
use crate::support::redis::{Certificates, Cluster, Proxy, Redis, Sentinels};
use crate::support::until;

fn in_use(servers: Servers) -> Settings {
    // One that a busy machine keeps: after a later reply the server seems to be away.
    let deadline = Duration::from_secs(1);
    let lease = Duration::from_secs(4);
    Settings { quota: PLENTY, concurrent: 1000, deadline, lease, clock: Clock::Server, ..settings(servers) }
}

fn address(of: std::net::SocketAddr) -> Address {
    Address { host: of.ip().to_string(), port: of.port() }
}

fn of_sentinels(sentinels: &Sentinels) -> Servers {
    let sentinels = sentinels.addresses().into_iter().map(address).collect();
    Servers::Sentinel { sentinels, service: Sentinels::SERVICE.into() }
}

fn of_cluster(cluster: &Cluster) -> Servers {
    Servers::Cluster(cluster.nodes().iter().map(at).collect())
}

fn open(settings: Settings) -> Result<State, OpenError> {
    block_on(RedisState::open(settings)).map(State::Redis)
}

/// Admissions that the server does not count: the failover has lost them.
fn lost(load: &Load, samples: &[Sample]) -> u64 {
    let admitted = samples.iter().filter(|sample| sample.outcome == Outcome::Admitted).count() as u64;
    admitted.saturating_sub(load.uses())
}

#[test]
fn sentinel_failover_restores_service() {
    let _entered = enter();
    let sentinels = Sentinels::start();
    let mut load = Load::start(in_use(of_sentinels(&sentinels)));
    // The keys of the load, which a failover may lose as well.
    sentinels.until_replicated();
    let killed = sentinels.failover();
    load.see(10, |outcome| matches!(outcome, Outcome::Unavailable(_)));
    let back = load.see(200, |outcome| outcome == Outcome::Admitted);
    let samples = load.end();
    let primary = sentinels.until_other_primary(killed);
    println!("back after {back:?}; of {} requests, {} uses were lost", samples.len(), lost(&load, &samples));
    load.until_no_slot_is_taken(primary);
    // Replication is never behind by more than a second's admissions.
    assert!(lost(&load, &samples) < 4000);
}

#[test]
fn cluster_failover_restores_service() {
    let _entered = enter();
    let cluster = Cluster::start(3, 1);
    let mut load = Load::start(in_use(of_cluster(&cluster)));
    let slot = cluster.slot_of(load.fixture.tag.as_str());
    let primary = cluster.primary_of(slot);
    primary.until_replicated(cluster.replicas_of(primary).into_iter());
    primary.kill();
    load.see(10, |outcome| matches!(outcome, Outcome::Unavailable(_)));
    let back = load.see(200, |outcome| outcome == Outcome::Admitted);
    let samples = load.end();
    println!("back after {back:?}; of {} requests, {} uses were lost", samples.len(), lost(&load, &samples));
    load.until_no_slot_is_taken(cluster.until_other_primary(slot, primary));
    assert!(lost(&load, &samples) < 4000);
}

#[test]
fn cluster_is_discovered_from_one_node() {
    let _entered = enter();
    let cluster = Cluster::start(3, 0);
    let state = open(in_use(Servers::Single(at(&cluster.nodes()[0])))).unwrap();
    block_on(async {
        for _ in 0..8 {
            let key = fixture_with_key(&state).await.1;
            admit(&state, &key, clock::now()).await;
        }
        state.close().await;
    });
}

#[test]
fn hash_slot_migration_fails_no_request() {
    let _entered = enter();
    let cluster = Cluster::start(3, 0);
    let mut load = Load::start(in_use(of_cluster(&cluster)));
    let admitted = |outcome| outcome == Outcome::Admitted;
    let slot = cluster.slot_of(load.fixture.tag.as_str());
    let from = cluster.primary_of(slot);
    let to = cluster.primaries().into_iter().find(|node| node.port() != from.port()).unwrap();
    cluster.begin_move(slot, from, to);
    load.see(100, admitted);
    while cluster.move_keys(slot, from, to, 100) > 0 {}
    load.see(100, admitted);
    assert!(to.command_calls("asking").0 > 0, "no command was sent with ASKING");
    cluster.end_move(slot, from, to);
    load.see(100, admitted);
    let samples = load.end();
    let refused = samples.iter().filter(|sample| matches!(sample.outcome, Outcome::Refused(_))).count();
    assert_eq!(refused, 0);
    load.until_no_slot_is_taken(to);
}

/// A decision needs the records of a key and of its organization on one node.
#[test]
fn request_waits_while_its_records_are_on_both_nodes_of_a_migration() {
    let _entered = enter();
    let cluster = Cluster::start(3, 0);
    let state = open(Settings { deadline: Duration::from_secs(20), ..in_use(of_cluster(&cluster)) }).unwrap();
    let (fixture, key) = block_on(fixture_with_key(&state));
    drop(block_on(admit(&state, &key, clock::now())));
    let slot = cluster.slot_of(fixture.tag.as_str());
    let from = cluster.primary_of(slot);
    let to = cluster.primaries().into_iter().find(|node| node.port() != from.port()).unwrap();
    cluster.begin_move(slot, from, to);
    let org = format!("keygate:{{{}}}:org", fixture.tag.as_str());
    from.cli::<()>(&["MIGRATE", "127.0.0.1", &to.port().to_string(), &org, "0", "5000"]);
    std::thread::scope(|scope| {
        let decided = scope.spawn(|| drop(block_on(admit(&state, &key, clock::now()))));
        let refused = || {
            let stats: String = from.cli(&["INFO", "errorstats"]);
            let count = stats.lines().find_map(|line| line.strip_prefix("errorstat_TRYAGAIN:count=")?.parse().ok());
            count.filter(|count: &u64| *count > 10)
        };
        until("the request was refused often, or is decided", || refused().or(decided.is_finished().then_some(0)));
        cluster.move_keys(slot, from, to, usize::MAX);
        decided.join().expect("it is admitted");
    });
    cluster.end_move(slot, from, to);
    block_on(state.close());
}

#[test]
fn organizations_spread_over_a_cluster_and_each_decision_is_in_one_hash_slot() {
    let _entered = enter();
    let cluster = Cluster::start(3, 0);
    let state = open(in_use(of_cluster(&cluster))).unwrap();
    let mut keys = Vec::new();
    block_on(async {
        for _ in 0..90 {
            keys.push(fixture_with_key(&state).await.1);
        }
    });
    cluster.primaries().into_iter().for_each(Redis::reset_stats);
    block_on(async {
        for key in &keys {
            admit(&state, key, clock::now()).await;
        }
    });
    // The requests have no key ids, so the keys were found by their digests first; the decisions
    // are where the keys are.
    let decisions: Vec<u64> = cluster.primaries().iter().map(|node| node.command_calls("evalsha").0).collect();
    assert!(decisions.iter().all(|count| *count >= 20), "{decisions:?}");
    for node in cluster.primaries() {
        assert!(!node.cli::<String>(&["INFO", "errorstats"]).contains("MOVED"), "a command was sent to the wrong node");
    }
    let tag = |held: &super::fixture::HeldKey| -> OrgTag { held.id.tag() };
    for key in &keys {
        let slots = ["org", "keys", &format!("key:{}", key.id)]
            .map(|record| cluster.slot_of(&format!("keygate:{{{}}}:{record}", tag(key).as_str())));
        assert!(slots.iter().all(|slot| *slot == slots[0]));
    }
    block_on(state.close());
}

/// Record of the state's identity: without it the data counts as lost.
pub(super) const IDENTITY: &str = "keygate:{revocations}";

/// Replaces the server by another process that has these records only.
fn take_over_with<const N: usize>(server: &Redis, records: [(Vec<u8>, String); N]) {
    server.kill();
    server.restart_empty();
    for (dump, record) in records {
        let mut restore = ::redis::cmd("RESTORE");
        restore.arg(&record).arg(0).arg(dump).arg("REPLACE");
        server.query::<()>(&restore).unwrap();
    }
}

/// The new process lacks the last writes, like a promoted replica.
#[test]
fn revocation_lost_by_a_failover_is_replayed() {
    let (_entered, server) = enter_with_server();
    let proxy = Proxy::to(server.address());
    let state = open(in_use(Servers::Single(address(proxy.address())))).unwrap();
    let (fixture, key) = block_on(fixture_with_key(&state));
    let removed = block_on(async {
        let user = fixture.user(&state, "gone@example.com").await;
        fixture.key_of(&state, user).await
    });
    let record = |id: domain::key::KeyId| format!("keygate:{{{}}}:key:{id}", fixture.tag.as_str());
    let org = format!("keygate:{{{}}}:org", fixture.tag.as_str());
    let names = [org, record(key.id), record(removed.id), IDENTITY.into()];
    let old = names.map(|name| (server.cli::<Vec<u8>>(&["DUMP", &name]), name));
    block_on(async {
        revoke(&state, &key).await;
        let user = state.key(removed.id).await.unwrap().unwrap().user;
        state.change(Change::RemoveUser { org: fixture.org, user, at: clock::now() }).await.unwrap();
    });
    proxy.refuse(true);
    proxy.cut();
    take_over_with(&server, old);
    proxy.refuse(false);
    until("the service is back", || {
        let ask = state::DecideRequest { id: Some(key.id), ..decide_request(&key.digest, clock::now()) };
        block_on(state.decide(ask)).ok()
    });
    // The index of digests is gone too: the keys are found by their ids.
    let refusal = |held: &super::fixture::HeldKey| {
        let ask = state::DecideRequest { id: Some(held.id), ..decide_request(&held.digest, clock::now()) };
        super::fixture::refused(&block_on(state.decide(ask)).unwrap())
    };
    assert_eq!(refusal(&key), Refusal::Revoked);
    assert_eq!(refusal(&removed), Refusal::UserRemoved);
    assert!(server.cli::<bool>(&["HEXISTS", &record(key.id), "revoked"]));
}

/// The new process lacks the last reports, like a promoted replica.
#[test]
fn slots_lost_by_a_failover_are_reported_again() {
    let (_entered, server) = enter_with_server();
    let proxy = Proxy::to(server.address());
    let state = open(in_use(Servers::Single(address(proxy.address())))).unwrap();
    let (fixture, key) = block_on(fixture_with_key(&state));
    let first = block_on(admit(&state, &key, clock::now()));
    let org = format!("keygate:{{{}}}:org", fixture.tag.as_str());
    let records = [org.clone(), format!("keygate:{{{}}}:key:{}", fixture.tag.as_str(), key.id), IDENTITY.into()];
    let old = records.map(|record| (server.cli::<Vec<u8>>(&["DUMP", &record]), record));
    let more: Vec<_> = (0..5).map(|_| block_on(admit(&state, &key, clock::now()))).collect();
    proxy.refuse(true);
    proxy.cut();
    take_over_with(&server, old);
    proxy.refuse(false);
    let taken = || {
        let live: Vec<u8> = server.cli(&["HGET", &org, "live"]);
        f64::from_le_bytes(live[8..16].try_into().unwrap())
    };
    until("all six slots are counted", || (taken() == 6.0).then_some(()));
    drop((first, more));
    until("no slot is counted", || (taken() == 0.0).then_some(()));
    block_on(state.close());
}

#[test]
fn change_is_acknowledged_when_replicas_have_it() {
    let _entered = enter();
    let servers = Redis::options().start_many(2);
    let [primary, replica] = &*servers else { panic!("two") };
    replica.cli::<()>(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    until("the replica follows", || (replica.info("replication", "master_link_status") == "up").then_some(()));
    let durability = Durability { replicas: 1, timeout: Duration::from_secs(3) };
    let state = open(Settings { durability, ..in_use(Servers::Single(at(primary))) }).unwrap();
    let (_, key) = block_on(fixture_with_key(&state));
    replica.stop_process();
    let change = Change::RevokeKey { key: key.id, at: clock::now() };
    let refused = block_on(state.change(change.clone()));
    assert!(matches!(refused, Err(ChangeError::NotReplicated { wanted: 1, reached: 0 })), "{refused:?}");
    assert_eq!(block_on(refuse(&state, &key, clock::now())), Refusal::Revoked, "the change was made");
    replica.resume();
    until("the replica confirms", || block_on(state.change(change.clone())).ok());
}

#[test]
fn server_with_eviction_is_refused_with_advice() {
    let _entered = enter();
    let server = Redis::options().arg("maxmemory-policy", "allkeys-lru").start();
    let Err(OpenError::Server(error)) = open(in_use(Servers::Single(at(&server)))) else { panic!("opened") };
    assert!(matches!(&*error, ConnectError::Unsuitable(Unsuitable::Evicts(policy)) if policy == "allkeys-lru"));
    assert!(error.to_string().contains("redis-cli CONFIG SET maxmemory-policy noeviction"), "{error}");
    server.cli::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    open(in_use(Servers::Single(at(&server)))).unwrap();
}

#[test]
fn server_with_a_password_requires_it() {
    let _entered = enter();
    let password = created_password();
    let server = Redis::options().password(&password).start();
    let with = |password: Option<&str>| {
        let password = password.map(|password| domain::secret::Secret::new(password.into()));
        let login = Login { user: None, password };
        open(Settings { login, ..in_use(Servers::Single(at(&server))) })
    };
    for wrong in [None, Some("wrong")] {
        let Err(OpenError::Server(error)) = with(wrong) else { panic!("opened") };
        assert!(error.is_lasting(), "{error:?}");
    }
    let state = with(Some(&password)).unwrap();
    let (_, key) = block_on(fixture_with_key(&state));
    block_on(admit(&state, &key, clock::now()));
}

fn created_password() -> String {
    domain::identity::OrgId::generate().to_string()
}

#[test]
fn tls_with_a_private_authority_and_a_client_certificate() {
    let _entered = enter();
    let certificates = Certificates::generate();
    let server = Redis::options().tls(&certificates).start();
    let with = |tls: Option<ClientSettings>| open(Settings { tls, ..in_use(Servers::Single(at(&server))) });
    let ca = Some(certificates.ca());
    let (chain, file) = certificates.client();
    let identity = Some(CertificateFiles { chain, key: file });
    let state = with(Some(ClientSettings { ca: ca.clone(), identity: identity.clone() })).unwrap();
    let (_, key) = block_on(fixture_with_key(&state));
    block_on(admit(&state, &key, clock::now()));
    block_on(state.close());
    // Refused: another authority than the server's, no client certificate, no TLS.
    let stranger = Certificates::generate();
    let strange = ClientSettings { ca: Some(stranger.ca()), identity };
    for tls in [Some(strange), Some(ClientSettings { ca, identity: None }), None] {
        let Ok(state) = with(tls) else { continue };
        let digest = key.digest;
        let ask = decide_request(&digest, clock::now());
        assert!(block_on(state.decide(ask)).is_err());
    }
}

#[test]
fn state_without_any_server_opens_and_refuses() {
    let (_entered, server) = enter_with_server();
    let stopped = Servers::Single(at(&server));
    server.kill();
    let state = open(in_use(stopped)).unwrap();
    assert!(!state.is_available());
    let org = OrgTag::generate().unwrap();
    let key = domain::key::KeyId::generate(org).unwrap();
    let digest = domain::key::KeyDigest::of(b"whatever");
    let ask = state::DecideRequest { id: Some(key), ..decide_request(&digest, clock::now()) };
    assert_eq!(block_on(state.decide(ask)).unwrap_err(), Unavailable::Unreachable);
    server.restart();
    until("it is available", || state.is_available().then_some(()));
    block_on(async {
        created(&state).await;
        state.close().await;
    });
}
