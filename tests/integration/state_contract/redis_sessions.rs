//! Sessions and tickets in the Redis state, with several gateways.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::clock::{self, Micros};
use domain::key::KeyId;
use domain::secret::Secret;
use domain::session::Token;
use state::redis::{Address, Durability, Login, OnUnavailable, Servers, Settings};
use state::{
    Change, ChangeError, Key, Redis as RedisState, Session, State, TicketSource, Unavailable, session_quota_digest,
};

use super::cases_sessions::{create, created, end, find, new_session};
use super::cases_tickets::{put, take};
use super::fixture::{admit, fixture_with_key, new_key};
use super::redis::{at, settings};
use super::redis_deployments::IDENTITY;
use super::runtime::{block_on, enter};
use crate::state_contract::redis::enter_with_server;
use crate::support::redis::{Proxy, Redis};
use crate::support::{lenient, until};

fn open(settings: Settings) -> State {
    State::Redis(block_on(RedisState::open(settings)).unwrap())
}

fn gateway(server: &Redis) -> State {
    open(settings(Servers::Single(at(server))))
}

#[test]
fn session_change_by_one_gateway_holds_on_all() {
    let (_entered, server) = enter_with_server();
    let [one, other] = [gateway(&server), gateway(&server)];
    block_on(async {
        let (session, digest) = created(&one).await;
        assert_eq!(find(&other, &digest, session.created).await, Some(session.clone()));
        let org = session.memberships[1].org;
        other.change(Change::ChooseOrg { session: session.id, org }).await.unwrap();
        assert_eq!(find(&one, &digest, session.created).await.unwrap().chosen, org);
        end(&other, session.id).await;
        assert_eq!(find(&one, &digest, session.created).await, None);
        let ticket = put(&one, b"once", session.expires).await;
        let (first, second) =
            tokio::join!(take(&one, &ticket, session.created), take(&other, &ticket, session.created));
        assert!(first.is_some() != second.is_some());
    });
}

#[test]
fn session_use_is_written_once_a_minute_and_otherwise_costs_one_command() {
    let (_entered, server) = enter_with_server();
    let state = gateway(&server);
    let (session, digest) = block_on(created(&state));
    let mut monitor = server.monitor();
    for (seconds, is_written) in [(0, false), (59, false), (60, true), (61, false), (119, false), (120, true)] {
        block_on(find(&state, &digest, session.created.after(Duration::from_secs(seconds)))).unwrap();
        let commands = monitor.commands_on("keygate:session:");
        let count = |name: &str| commands.iter().filter(|command| *command == name).count();
        assert_eq!((count("hgetall"), count("hset")), (1, usize::from(is_written)), "after {seconds} s: {commands:?}");
        assert!(is_written || commands.len() == 1, "after {seconds} s: {commands:?}");
    }
    let again = gateway(&server);
    let seen = session.created.after(Duration::from_secs(120));
    assert_eq!(block_on(again.sessions(seen)).unwrap()[0].seen, seen);
}

#[test]
fn session_use_does_not_restore_an_ended_session() {
    let (_entered, server) = enter_with_server();
    let [one, other] = [gateway(&server), gateway(&server)];
    block_on(async {
        for _ in 0..200 {
            let (session, digest) = created(&one).await;
            let later = session.created.after(Duration::from_secs(120));
            let uses = futures_util::future::join_all((0..8).map(|_| one.session(&digest, later)));
            tokio::join!(uses, end(&other, session.id));
            assert_eq!(find(&one, &digest, later).await, None);
        }
    });
    let left: Vec<String> = server.cli(&["KEYS", "keygate:session:*"]);
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn expired_sessions_and_tickets_are_deleted_by_redis() {
    let (_entered, server) = enter_with_server();
    let state = gateway(&server);
    let now = clock::now();
    block_on(async {
        let (session, digest) = new_session();
        let over = Session { expires: now.before(Duration::from_secs(1)), ..session };
        create(&state, &over, digest).await.unwrap();
        assert_eq!(server.cli::<u64>(&["HLEN", "keygate:{sessions}:digests"]), 1);
        let (live, _) = created(&state).await;
        assert_eq!(server.cli::<u64>(&["HLEN", "keygate:{sessions}:digests"]), 1, "the entry went with a sign-in");
        assert_eq!(server.cli::<u64>(&["ZCARD", "keygate:{sessions}:ends"]), 1);
        let record: Vec<String> = server.cli(&["KEYS", "keygate:session:*"]);
        let [record] = &*record else { panic!("{record:?}") };
        let at: u64 = server.cli(&["PEXPIRETIME", record]);
        assert_eq!(at, live.expires.0.div_ceil(1000));
        put(&state, b"x", live.expires).await;
        let ticket: Vec<String> = server.cli(&["KEYS", "keygate:ticket:*"]);
        assert_eq!(server.cli::<u64>(&["PEXPIRETIME", &ticket[0]]), at);
        put(&state, b"y", now).await;
        assert_eq!(server.cli::<Vec<String>>(&["KEYS", "keygate:ticket:*"]).len(), 1);
    });
}

/// Sessions are never admitted offline, whatever `on_unavailable` says.
#[test]
fn sessions_are_unavailable_without_redis() {
    let (_entered, server) = enter_with_server();
    let proxy = Proxy::to(server.address());
    let address = Address { host: "127.0.0.1".into(), port: proxy.address().port() };
    let deadline = Duration::from_millis(200);
    let on_unavailable = OnUnavailable::KnownKeys { max_staleness: Duration::from_secs(60) };
    let state = open(Settings { deadline, on_unavailable, ..settings(Servers::Single(address)) });
    let (session, digest) = block_on(created(&state));
    server.stop_process();
    let begun = Instant::now();
    assert_eq!(block_on(state.session(&digest, session.created)), Err(Unavailable::TimedOut));
    assert!(begun.elapsed() < lenient(10 * deadline), "{:?}", begun.elapsed());
    server.resume();
    proxy.refuse(true);
    proxy.cut();
    until("the link is down", || {
        (block_on(state.session(&digest, session.created)) == Err(Unavailable::Unreachable)).then_some(())
    });
    assert!(block_on(state.take_ticket(&digest, session.created)).is_err());
    assert!(block_on(state.sessions(session.created)).is_err());
    proxy.refuse(false);
    until("the session is found again", || block_on(state.session(&digest, session.created)).ok().flatten());
}

/// The new process lacks the last writes, like a promoted replica.
#[test]
fn session_end_lost_by_a_failover_is_replayed() {
    let (_entered, server) = enter_with_server();
    let proxy = Proxy::to(server.address());
    let address = Address { host: "127.0.0.1".into(), port: proxy.address().port() };
    let state = open(settings(Servers::Single(address)));
    let [(ended, digest), (kept, other)] = block_on(async { [created(&state).await, created(&state).await] });
    let mut names: Vec<String> = server.cli(&["KEYS", "keygate:session:*"]);
    names.push(IDENTITY.into());
    let old: Vec<(String, Vec<u8>)> =
        names.into_iter().map(|name| (name.clone(), server.cli(&["DUMP", &name]))).collect();
    block_on(end(&state, ended.id));
    proxy.refuse(true);
    proxy.cut();
    server.kill();
    server.restart_empty();
    for (name, dump) in old {
        let mut restore = ::redis::cmd("RESTORE");
        restore.arg(name).arg(0).arg(dump);
        server.query::<()>(&restore).unwrap();
    }
    proxy.refuse(false);
    until("the service is back", || block_on(state.session(&other, kept.created)).ok().flatten());
    // While a link is new, what is not found may be refused instead: it may be there a moment later.
    let answered = until("the ended session is looked for", || block_on(state.session(&digest, ended.created)).ok());
    assert_eq!(answered, None);
}

/// Repeating the change does not acknowledge it either, as long as no replica has it.
#[test]
fn session_change_without_replicas_is_not_acknowledged() {
    let (_entered, server) = enter_with_server();
    let durability = Durability { replicas: 1, timeout: Duration::from_millis(20) };
    let state = Arc::new(open(Settings { durability, ..settings(Servers::Single(at(&server))) }));
    block_on(async {
        let state = State::for_thread(&state).await;
        let lacks = |made: Result<(), ChangeError>| {
            assert!(matches!(made, Err(ChangeError::NotReplicated { wanted: 1, reached: 0 })), "{made:?}");
        };
        let ((session, digest), token) = (new_session(), Token::generate().unwrap().digest());
        let id = session.id;
        lacks(create(&state, &session, digest).await);
        lacks(state.change(Change::ChooseOrg { session: id, org: session.memberships[1].org }).await);
        lacks(state.change(Change::EndSession { session: id }).await);
        assert_eq!(find(&state, &digest, session.created).await, None);
        lacks(state.change(Change::EndSession { session: id }).await);
        let content = b"x".to_vec();
        let source = TicketSource::Operator;
        lacks(state.change(Change::PutTicket { digest: token, content, expires: session.expires, source }).await);
        let taken = state.take_ticket(&token, session.created).await;
        assert!(matches!(taken, Err(ChangeError::Unavailable(_))), "{taken:?}");
        assert_eq!(state.take_ticket(&token, session.created).await.unwrap(), None);
    });
}

/// A session quota key is reported as taken only once its record is written: one that was only claimed, by a gateway
/// that died, is not there.
#[test]
fn session_quota_key_is_taken_only_once_it_is_written() {
    let (_entered, server) = enter_with_server();
    let [one, other] = [gateway(&server), gateway(&server)];
    block_on(async {
        let (fixture, key) = fixture_with_key(&one).await;
        let digest = session_quota_digest(fixture.user);
        let create = |state| {
            let (key, _) = new_key(fixture.tag, fixture.org, fixture.user);
            State::change(state, Change::CreateKey { key: Key { session_quota_key: true, ..key }, digest })
        };
        let hex: String = digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let claim = |at: Micros| {
            let (name, dead) = (format!("keygate:digest:{hex}"), KeyId::generate(fixture.tag).unwrap());
            server.cli::<u64>(&["HSET", &name, "key", dead.as_str(), "at", &at.0.to_string()])
        };
        claim(clock::now());
        let made = create(&one).await;
        assert!(matches!(made, Err(ChangeError::Unavailable(_))), "{made:?}");
        claim(clock::now().before(Duration::from_secs(61)));
        let (first, second) = tokio::join!(create(&one), create(&other));
        assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
        let taken = first.and(second);
        assert!(matches!(taken, Err(ChangeError::Taken("digest"))), "{taken:?}");
        let there = one.key_of(&digest).await.unwrap();
        assert!(there.is_some_and(|there| there != key.id));
    });
}

/// The commands that the scripts of the Redis state call.
fn commands_of_scripts() -> BTreeSet<String> {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/state/src/redis/scripts");
    let scripts =
        std::fs::read_dir(scripts).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    let named = |script: String| -> Vec<String> {
        script.split("call('").skip(1).map(|rest| rest.split('\'').next().unwrap().to_lowercase()).collect()
    };
    let found: BTreeSet<String> = scripts.flat_map(named).collect();
    assert!(found.contains("hget"));
    found
}

/// The ACL rights that the configuration file tells the operator to grant.
#[test]
fn acl_rights_named_in_the_configuration_are_enough() {
    let _entered = enter();
    let text = include_str!("../../../config/keygate.yaml");
    let advice = &text[text.find("Permissions that it needs").unwrap()..text.find("# user: keygate").unwrap()];
    let rights =
        advice.split_whitespace().map(|word| word.trim_end_matches([',', '.'])).filter(|word| word.starts_with('+'));
    let server = Redis::start();
    let mut user = vec!["ACL", "SETUSER", "keygate", "on", ">secret", "~keygate:*"];
    user.extend(rights);
    for command in commands_of_scripts() {
        assert!(user.contains(&&*format!("+{command}")), "a script calls {command}");
    }
    server.cli::<()>(&user);
    let login = Login { user: Some("keygate".into()), password: Some(Secret::new("secret".to_owned())) };
    let state = open(Settings { login, ..settings(Servers::Single(at(&server))) });
    block_on(async {
        let (fixture, key) = fixture_with_key(&state).await;
        admit(&state, &key, clock::now()).await;
        admit(&state, &fixture.session_quota_key(&state, fixture.user).await, clock::now()).await;
        let (session, digest) = new_session();
        let over = Session { expires: clock::now().before(Duration::from_secs(1)), ..session };
        create(&state, &over, digest).await.unwrap();
        let (session, digest) = created(&state).await;
        let now = session.created.after(Duration::from_secs(120));
        assert!(find(&state, &digest, now).await.is_some());
        assert_eq!(state.sessions(now).await.unwrap()[0].seen, now, "the use was written");
        let org = session.memberships[1].org;
        state.change(Change::ChooseOrg { session: session.id, org }).await.unwrap();
        end(&state, session.id).await;
        let ticket = put(&state, b"x", session.expires).await;
        assert!(take(&state, &ticket, now).await.is_some());
        let mut export = state::Exporter::begin(&state).await.unwrap();
        while export.next().await.unwrap().is_some() {}
        assert!(!server.cli::<String>(&["INFO", "errorstats"]).contains("NOPERM"));
        state.close().await;
    });
}
