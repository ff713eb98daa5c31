//! Passwords of Redis and PostgreSQL, rotated while requests flow: none of them fails.

use std::fs;

use super::{Office, SQLITE, procedure, report, ship};
use crate::support::redis::Redis;
use crate::support::{Load, Postgresql, Shell, eventually};

const OLD: &str = "the-old-password";

/// The rights that `config/keygate.yaml` names for a user of Redis.
fn documented_rights() -> String {
    let text = fs::read_to_string("config/keygate.yaml").unwrap();
    let part = text.split("Permissions that it needs").nth(1).unwrap().split("# user:").next().unwrap();
    let rights = part
        .split_whitespace()
        .filter(|word| word.starts_with(['+', '~']))
        .map(|word| word.trim_end_matches([',', '.']));
    rights.collect::<Vec<_>>().join(" ").replace("PREFIX", "keygate")
}

impl Office {
    fn on_redis(server: &Redis, user: &str) -> Self {
        let url = format!("redis://127.0.0.1:{}", server.port());
        let file = "{ file: redis-password }";
        let state = format!("{{ redis: {{ url: '{url}', {user}password: {file}, deadline: 2s }} }}");
        let office = Self::new(&state, SQLITE);
        fs::write(office.setup.path().join("redis-password"), OLD).unwrap();
        office
    }

    fn shell_on_redis(&self, server: &Redis, key: &str, gateway: u32) -> Shell {
        let shell = self.shell(key).replace("-h redis.internal", &format!("-p {}", server.port()));
        shell.reloads(&[("keygate", gateway)]);
        shell
    }
}

#[test]
fn password_of_redis_is_rotated_without_a_failed_request() {
    let dir = tempfile::tempdir().unwrap();
    let users = dir.path().join("users.acl");
    let rights = documented_rights();
    fs::write(&users, format!("user default on nopass ~* &* +@all\nuser keygate on >{OLD} {rights}\n")).unwrap();
    let server = Redis::options().arg("aclfile", users.to_str().unwrap()).start();
    let office = Office::on_redis(&server, "user: keygate, ");
    let key = office.key_in("acme");
    let gateway = office.setup.start_logged();
    let load = Load::at(office.setup.address, "/api/queries", &key, 4);
    load.wait_for(100);

    let shell = office.shell_on_redis(&server, &key, gateway.id());
    report("the password of Redis", shell.follow(&procedure("The password of Redis").concat()));
    load.wait_for(100);
    load.stop();
    assert!(!fs::read_to_string(&users).unwrap().contains(OLD));

    // The gateway knows the new password: all its connections have to be made again.
    let ended: u64 = server.cli(&["CLIENT", "KILL", "USER", "keygate"]);
    assert!(ended > 0);
    eventually("the gateway is connected again", || office.status(&key) == 200);
    let refused: Vec<redis::Value> = server.cli(&["ACL", "LOG"]);
    // Only the try of the procedure.
    assert_eq!(refused.len(), 1, "{refused:?}");
    gateway.stop();
}

#[test]
fn single_password_of_redis_is_rotated_as_the_page_says() {
    let server = Redis::options().password(OLD).start();
    let office = Office::on_redis(&server, "");
    let key = office.key_in("acme");
    let gateway = office.setup.start_logged();
    let load = Load::at(office.setup.address, "/api/queries", &key, 4);
    load.wait_for(100);
    office.shell_on_redis(&server, &key, gateway.id()).follow(&procedure("One password for all").concat());
    load.wait_for(100);
    load.stop();
    let log = || fs::read_to_string(office.setup.path().join("log")).unwrap();
    eventually("the gateway has reloaded", || log().contains("reloaded the configuration"));
    let ended: u64 = server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert!(ended > 0);
    eventually("the gateway is connected again", || office.status(&key) == 200);
    gateway.stop();
}

/// Creates a database that a role of its name owns, which needs its password.
fn create(database: &Postgresql, role: &str, name: &str) {
    database.sql(&format!("CREATE ROLE {role} LOGIN PASSWORD '{OLD}'"));
    database.sql(&format!("CREATE DATABASE {name} OWNER {role}"));
    database.require_password(role);
}

#[test]
fn password_of_postgresql_is_rotated_without_a_failed_request() {
    let database = Postgresql::start();
    create(&database, "query_store", "queries");
    create(&database, "keygate_audit", "audit");
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("query-store-password");
    fs::write(&secret, OLD).unwrap();
    let port = database.port();
    let store = format!(
        "store:\n  postgresql:\n    url: postgresql://query_store@127.0.0.1:{port}/queries\n    \
         password: {{ file: {} }}\n\
         cursor: {{ keys: [{{ id: 1, secret: 0123456789abcdef0123456789abcdef }}] }}",
        secret.display()
    );
    let office = Office::new("{ embedded: { path: state.db } }", &store);
    fs::write(office.setup.path().join("audit-password"), OLD).unwrap();
    let url = format!("postgresql://keygate_audit@127.0.0.1:{port}/audit");
    ship(&office.setup, &format!("{{ url: '{url}', password: {{ file: audit-password }} }}"));
    let key = office.key_in("acme");
    let gateway = office.setup.start_logged();
    let shell = office.shell(&key);
    let shell =
        shell.replace(&format!("{}/query-store-password", office.setup.path().display()), secret.to_str().unwrap());
    let socket = format!("-h {} -p {port} -U keygate", database.socket().display());
    let shell = shell
        .replace("-h db.internal -U postgres", &socket)
        .replace("-h db.internal", &format!("-h 127.0.0.1 -p {port}"));
    shell.reloads(&[("keygate", gateway.id()), ("query-store", office.store.id())]);
    let log = || fs::read_to_string(office.settings.with_extension("log")).unwrap();
    let commands = procedure("The password of PostgreSQL");

    // A broken file changes nothing.
    let settings = fs::read_to_string(&office.settings).unwrap();
    fs::write(&office.settings, "nonsense: [").unwrap();
    office.store.hang_up();
    eventually("the file is refused", || log().contains("cannot reload the settings"));
    fs::write(&office.settings, settings).unwrap();

    // More clients need more connections: with the old password, and then with the new one.
    let load = || {
        let load = Load::at(office.setup.address, "/api/queries", &key, 3);
        load.wait_for(100);
        load
    };
    let first = load();
    let mut time = shell.follow(&commands[0]);
    eventually("query-store has reloaded", || log().contains("reloaded the password of PostgreSQL"));
    let second = load();
    assert!(log().contains("does not accept the new password yet"), "{}", log());
    time += shell.follow(&commands[1]);
    let refused = log().matches("does not accept").count();
    let third = load();
    time += shell.follow(&commands[2]);
    let sink = procedure("The audit's sink");
    time += shell.follow(&sink[0]);
    eventually("the sink is connected with the new password", || shell.try_follow(&sink[1]).is_ok());
    report("the password of PostgreSQL", time);
    let answered: usize = [first, second, third].map(Load::stop).iter().sum();
    assert!(answered >= 300 && log().matches("does not accept").count() == refused, "{answered} {}", log());
    let sent = answered.to_string();
    eventually("the sink has all records", || {
        database.sql_in("audit", "SELECT count(*) FROM keygate.records WHERE action = 'GET /api/queries'")
            == [sent.as_str()]
    });
    gateway.stop();
}
