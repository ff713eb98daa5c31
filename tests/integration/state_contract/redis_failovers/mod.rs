//! Failovers and restarts of Redis that lose acknowledged revocations: of keys, of the keys of removed users, ends of
//! sessions and of their memberships. Those of what else a person withdraws in an incident are in `withdrawals`.
//!
//! Every test has two gateways at least. The one that acknowledged the revocations always enforces them; the other one
//! enforces them once the new primary has confirmed them.

use std::time::Duration;

use domain::clock;
use domain::session::TokenDigest;
use state::redis::{Address, Clock, Servers, Settings};
use state::{Change, DecideRequest, Decision, Redis as RedisState, RevocationEntry, Session, State, Unavailable};

use super::cases_sessions;
use super::fixture::{Fixture, HeldKey, fixture_with_key, revoke};
use super::redis::{at, settings};
use super::redis_load::PLENTY;
use super::runtime::{block_on, enter};
use crate::state_contract::redis::enter_with_server;
use crate::support::decide::decide_request;
use crate::support::redis::{Cluster, Proxy, Redis};
use crate::support::{is_strict, until};

mod many;
mod withdrawals;

fn gateway_settings(servers: Servers) -> Settings {
    // One that a busy machine keeps: after a later reply the server seems to be away.
    let deadline = Duration::from_millis(if is_strict() { 500 } else { 1000 });
    let lease = Duration::from_secs(4);
    Settings { quota: PLENTY, concurrent: 1_000_000, deadline, lease, clock: Clock::Server, ..settings(servers) }
}

fn open(servers: &Servers) -> State {
    State::Redis(block_on(RedisState::open(gateway_settings(servers.clone()))).unwrap())
}

/// The same gateway with the connections of another thread.
async fn worker_of(gateway: &State) -> State {
    let State::Redis(redis) = gateway else { panic!("on Redis") };
    State::Redis(redis.for_thread().await)
}

/// A key, a key of another user, a session, and the membership of another session, all to be revoked;
/// and a key that stays.
struct Subjects {
    fixture: Fixture,
    key: HeldKey,
    user_key: HeldKey,
    session: Session,
    digest: TokenDigest,
    member: (Session, TokenDigest),
    good: HeldKey,
}

/// Which of the revoked subjects are still admitted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Admitted {
    key: bool,
    user_key: bool,
    session: bool,
    membership: bool,
}

const NONE: Admitted = Admitted { key: false, user_key: false, session: false, membership: false };
const ALL: Admitted = Admitted { key: true, user_key: true, session: true, membership: true };

impl Subjects {
    async fn create(state: &State) -> Self {
        let (fixture, good) = fixture_with_key(state).await;
        let key = fixture.key(state).await;
        let user = fixture.user(state, "gone@example.com").await;
        let user_key = fixture.key_of(state, user).await;
        let (session, digest) = cases_sessions::created(state).await;
        let member = cases_sessions::created(state).await;
        Self { fixture, key, user_key, session, digest, member, good }
    }

    async fn revoke(&self, state: &State) {
        revoke(state, &self.key).await;
        let user = state.key(self.user_key.id).await.unwrap().unwrap().user;
        state.change(Change::RemoveUser { org: self.fixture.org, user, at: clock::now() }).await.unwrap();
        let (session, org) = (self.member.0.id, self.member.0.chosen);
        state.change(Change::EndMembership { session, org }).await.unwrap();
        cases_sessions::end(state, self.session.id).await;
    }

    async fn admitted(&self, state: &State) -> Result<Admitted, Unavailable> {
        Ok(Admitted {
            key: is_admitted(state, &self.key).await?,
            user_key: is_admitted(state, &self.user_key).await?,
            session: state.session(&self.digest, self.session.created).await?.is_some(),
            membership: self.is_member(state).await?,
        })
    }

    async fn is_member(&self, state: &State) -> Result<bool, Unavailable> {
        let (created, digest) = &self.member;
        let found = state.session(digest, created.created).await?;
        Ok(found.is_some_and(|found| found.memberships.contains(&created.memberships[0])))
    }

    /// Waits until this gateway serves again, and checks that it admits nothing revoked on the way.
    fn until_back(&self, knows: &State) {
        until("the service is back", || {
            let refused = block_on(self.admitted(knows));
            assert!(matches!(refused, Err(_) | Ok(NONE)), "the gateway that acknowledged them: {refused:?}");
            block_on(is_admitted(knows, &self.good)).is_ok_and(|admitted| admitted).then_some(())
        });
    }

    /// Waits until a gateway that did not know the revocations enforces them, and checks that it serves.
    fn wait_until_enforced(&self, by: &State) {
        until("the revocations hold again", || (block_on(self.admitted(by)) == Ok(NONE)).then_some(()));
        until("the gateway serves", || block_on(is_admitted(by, &self.good)).ok().filter(|admitted| *admitted));
    }
}

/// Uses a key.
async fn is_admitted(state: &State, key: &HeldKey) -> Result<bool, Unavailable> {
    let request = DecideRequest { id: Some(key.id), ..decide_request(&key.digest, clock::now()) };
    Ok(matches!(state.decide(request).await?, Decision::Admitted(_)))
}

/// Closes the gateways, so that no task of theirs outlasts the servers.
fn close(gateways: &[&State]) {
    gateways.iter().for_each(|gateway| block_on(gateway.close()));
}

/// A primary with one replica, both listed as nodes, so that links to both exist from the start.
pub(super) fn primary_with_replica() -> (Cluster, Servers) {
    let options = Redis::options().arg("cluster-replica-validity-factor", "0");
    let cluster = Cluster::start_with(options, 1, 1);
    let servers = Servers::Cluster(cluster.nodes().iter().map(at).collect());
    (cluster, servers)
}

/// Cuts replication off: the replica runs on, with what it has. Its links stay.
pub(super) fn cut_replication(primary: &Redis, replica: &Redis) {
    primary.cli::<u64>(&["WAIT", "1", "0"]);
    replica.cli::<()>(&["CONFIG", "SET", "masterauth", "wrong"]);
    primary.cli::<u64>(&["CLIENT", "KILL", "TYPE", "replica"]);
    until("the replica is cut off", || (replica.info("replication", "master_link_status") == "down").then_some(()));
}

/// A replica in `url` is promoted while the links to it exist.
#[test]
fn revocations_survive_the_promotion_of_a_listed_cluster_replica() {
    let _entered = enter();
    let (cluster, servers) = primary_with_replica();
    let [primary, replica] = cluster.nodes() else { panic!("two nodes") };
    let [knows, other] = [open(&servers), open(&servers)];
    let subjects = block_on(Subjects::create(&knows));
    assert_eq!(block_on(subjects.admitted(&other)), Ok(ALL));
    cut_replication(primary, replica);
    block_on(subjects.revoke(&knows));
    assert_eq!(block_on(subjects.admitted(&other)), Ok(NONE));
    primary.kill();
    replica.cli::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    subjects.until_back(&knows);
    subjects.wait_until_enforced(&other);
    close(&[&knows, &other]);
}

/// Errors of the new primary are no confirmations.
#[test]
fn revocations_are_asserted_until_a_promoted_node_accepts_them() {
    let _entered = enter();
    let (cluster, servers) = primary_with_replica();
    let [primary, replica] = cluster.nodes() else { panic!("two nodes") };
    let [knows, other] = [open(&servers), open(&servers)];
    let subjects = block_on(Subjects::create(&knows));
    cut_replication(primary, replica);
    block_on(subjects.revoke(&knows));
    replica.cli::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    primary.kill();
    replica.cli::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    // The assertion is among those that are refused.
    let refused = || replica.cli::<String>(&["INFO", "errorstats"]).contains("errorstat_NOREPLICAS");
    until("the new primary refuses writes", || refused().then_some(()));
    until("the gateway is told so", || {
        assert!(!block_on(is_admitted(&knows, &subjects.key)).unwrap_or_default());
        matches!(block_on(is_admitted(&knows, &subjects.good)), Err(Unavailable::ErrorReply)).then_some(())
    });
    replica.cli::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    subjects.until_back(&knows);
    subjects.wait_until_enforced(&other);
    close(&[&knows, &other]);
}

/// The same with a primary that comes back itself, with an older snapshot and without memory for a while.
#[test]
fn revocations_are_asserted_until_a_restarted_node_accepts_them() {
    let _entered = enter();
    let cluster = Cluster::start(1, 0);
    let [server] = cluster.nodes() else { panic!("one node") };
    let servers = Servers::Cluster(vec![at(server)]);
    let [knows, other] = [open(&servers), open(&servers)];
    let subjects = block_on(Subjects::create(&knows));
    server.cli::<()>(&["SAVE"]);
    block_on(subjects.revoke(&knows));
    // Links that connect again find a server that accepts `PING` and no writes.
    server.restart();
    server.cli::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    until("the gateways reach the server again", || {
        let gets_error = |state| matches!(block_on(is_admitted(state, &subjects.good)), Err(Unavailable::ErrorReply));
        (gets_error(&knows) && gets_error(&other)).then_some(())
    });
    server.cli::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    subjects.until_back(&knows);
    subjects.wait_until_enforced(&other);
    close(&[&knows, &other]);
}

/// The new owner of a hash slot has a history of its own, in which the records are older.
#[test]
fn revocations_are_asserted_on_the_new_owner_of_a_hash_slot() {
    let _entered = enter();
    let cluster = Cluster::start(2, 0);
    let servers = Servers::Cluster(cluster.nodes().iter().map(at).collect());
    let [knows, other] = [open(&servers), open(&servers)];
    let subjects = block_on(Subjects::create(&knows));
    let tag = subjects.fixture.tag.as_str();
    let slot = cluster.slot_of(tag);
    let from = cluster.primary_of(slot);
    let to = cluster.primaries().into_iter().find(|node| node.port() != from.port()).unwrap();
    let user = block_on(knows.key(subjects.user_key.id)).unwrap().unwrap().user;
    let records = [format!("keygate:{{{tag}}}:key:{}", subjects.key.id), format!("keygate:{{{tag}}}:user:{user}")];
    let old = records.map(|name| (from.cli::<Vec<u8>>(&["DUMP", &name]), name));
    block_on(subjects.revoke(&knows));
    cluster.begin_move(slot, from, to);
    for (dump, record) in &old {
        from.cli::<u64>(&["DEL", record]);
        to.cli::<()>(&["ASKING"]);
        to.query::<()>(::redis::cmd("RESTORE").arg(record).arg(0).arg(dump)).unwrap();
    }
    while cluster.move_keys(slot, from, to, 100) > 0 {}
    cluster.end_move(slot, from, to);
    subjects.until_back(&knows);
    subjects.wait_until_enforced(&other);
    close(&[&knows, &other]);
}

/// Links move to the new primary one after another: a revocation that the old primary acknowledged is
/// written to the new one.
#[test]
fn revocation_acknowledged_by_the_old_primary_reaches_the_new_one() {
    let _entered = enter();
    let servers = Redis::options().start_many(2);
    let [old, new] = &*servers else { panic!("two") };
    let proxies = [old, old].map(|server| Proxy::to(server.address()));
    let [knows, other] = proxies.each_ref().map(|proxy| {
        let address = Address { host: "127.0.0.1".into(), port: proxy.address().port() };
        open(&Servers::Single(address))
    });
    let subjects = block_on(Subjects::create(&knows));
    new.cli::<()>(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    until("the replica follows", || (new.info("replication", "master_link_status") == "up").then_some(()));
    old.cli::<u64>(&["WAIT", "1", "0"]);
    new.cli::<()>(&["REPLICAOF", "NO", "ONE"]);
    // From here on new connections lead to the new primary: those of the second worker, and of the other gateway.
    proxies.iter().for_each(|proxy| proxy.redirect(new.address()));
    let moved = block_on(worker_of(&knows));
    proxies[1].cut();
    until("the other gateway has moved", || block_on(is_admitted(&other, &subjects.good)).ok());
    // The old primary acknowledges it.
    block_on(subjects.revoke(&knows));
    assert!(old.cli::<String>(&["INFO", "commandstats"]).contains("cmdstat_evalsha"));
    assert_eq!(block_on(subjects.admitted(&moved)), Ok(NONE));
    subjects.wait_until_enforced(&other);
    proxies[0].cut();
    subjects.until_back(&knows);
    subjects.until_back(&moved);
    close(&[&knows, &other]);
}

/// The gateway that made the revocations is gone; the other one has read them in the log.
#[test]
fn revocations_outlast_the_gateway_that_made_them() {
    let (_entered, server) = enter_with_server();
    let servers = Servers::Single(at(&server));
    let [gone, knows] = [open(&servers), open(&servers)];
    let State::Redis(redis) = &knows else { panic!("on Redis") };
    let log = redis.revocations();
    // It begins with a gap, behind which it reads on.
    until("the other gateway reads the log", || (*log.subscribe().borrow() > 0).then_some(()));
    let subjects = block_on(Subjects::create(&gone));
    assert_eq!(block_on(subjects.admitted(&knows)), Ok(ALL));
    server.cli::<()>(&["SAVE"]);
    block_on(subjects.revoke(&gone));
    let has_read = || {
        let entries = log.range(0, *log.subscribe().borrow());
        entries.contains(&RevocationEntry::Session(subjects.session.id)).then_some(())
    };
    until("the other gateway has read the log", has_read);
    block_on(gone.close());
    drop(gone);
    server.restart();
    subjects.until_back(&knows);
    let new = open(&servers);
    subjects.wait_until_enforced(&new);
    close(&[&knows, &new]);
}

/// Restores the revoked records directly in Redis; no confirmation is involved. A gateway that starts then has not read
/// the log of revocations, and shows that the records are valid again.
#[test]
fn gateway_refuses_its_revocations_after_records_are_restored() {
    let (_entered, server) = enter_with_server();
    let servers = Servers::Single(at(&server));
    let knows = open(&servers);
    let subjects = block_on(Subjects::create(&knows));
    assert_eq!(block_on(subjects.admitted(&knows)), Ok(ALL));
    let mut records: Vec<String> = server.cli(&["KEYS", "keygate:session:*"]);
    let tag = subjects.fixture.tag.as_str();
    let user = block_on(knows.key(subjects.user_key.id)).unwrap().unwrap().user;
    records.extend([format!("keygate:{{{tag}}}:key:{}", subjects.key.id), format!("keygate:{{{tag}}}:user:{user}")]);
    let old: Vec<(Vec<u8>, String)> = records.into_iter().map(|name| (server.cli(&["DUMP", &name]), name)).collect();
    block_on(subjects.revoke(&knows));
    until("a new gateway admits them again", || {
        for (dump, record) in &old {
            let mut restore = ::redis::cmd("RESTORE");
            restore.arg(record).arg(0).arg(dump).arg("REPLACE");
            server.query::<()>(&restore).unwrap();
        }
        assert_eq!(block_on(subjects.admitted(&knows)), Ok(NONE));
        let new = open(&servers);
        let admitted = block_on(subjects.admitted(&new));
        close(&[&new]);
        (admitted == Ok(ALL)).then_some(())
    });
    assert_eq!(block_on(subjects.admitted(&knows)), Ok(NONE));
    close(&[&knows]);
}
