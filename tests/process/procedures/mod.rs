//! Every command of `docs/procedures.md`, in its order, against a gateway, query-store, Redis and PostgreSQL as
//! processes. The output of each is compared with the page.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use crate::leaked_keys::sign_in;
use crate::support::page::blocks;
use crate::support::shell::query_store;
use crate::support::{Client, KEYGATE, Running, Setup, Shell, SteppedClock, eventually, free_address, until};

mod lost_state;
mod machine;
mod passwords;

/// A dashboard, and limits that no load meets.
const BLOCKS: &str = "session: { origin: http://127.0.0.1:8080 }\n\
                      limits: { key: { requests: 10000000, per: 1s }, org: { concurrent: 1000 } }";
const SQLITE: &str = "store: { sqlite: { path: PATH/queries.db } }";

/// The blocks of commands below a heading of the page.
fn procedure(heading: &str) -> Vec<String> {
    let found = blocks().into_iter().filter(|block| block.page.ends_with("procedures.md") && block.heading == heading);
    let commands: Vec<String> = found.map(|block| block.text).filter(|text| text.starts_with("$ ")).collect();
    assert!(!commands.is_empty(), "{heading}");
    commands
}

/// A query-store, and a gateway in front of it that is not started.
pub struct Office {
    pub setup: Setup,
    store: Running,
    pub store_address: SocketAddr,
    settings: PathBuf,
}

impl Office {
    fn new(state: &str, store: &str) -> Self {
        let store_address = free_address();
        let setup = Setup::with_state(store_address, state, BLOCKS);
        let settings = setup.path().join("query-store.yaml");
        let text = format!("listen: {store_address}\n{}\n", store.replace("PATH", setup.path().to_str().unwrap()));
        fs::write(&settings, text).unwrap();
        let store = query_store(&settings);
        eventually("query-store is ready", || {
            Client::try_connect(store_address).is_ok_and(|mut client| client.get("/ready", "").status == 200)
        });
        Self { setup, store, store_address, settings }
    }

    pub fn embedded() -> Self {
        Self::new("{ embedded: { path: state.db } }", SQLITE)
    }

    /// Creates a user, an organization when there is none, and a key.
    pub fn key_in(&self, org: &str) -> String {
        self.setup.ok(&["org", "create", org]);
        self.setup.ok(&["user", "create", "--org", org, "ada@example.com", "--permission", "queries:read"]);
        self.setup.ok(&["key", "create", "--org", org, "--user", "ada@example.com", "laptop"])
    }

    /// The status of one request with a key.
    pub fn status(&self, key: &str) -> u16 {
        self.setup.client().get("/api/queries", key).status
    }

    /// A shell with the names of this installation, where a key is the one of the page.
    pub fn shell(&self, key: &str) -> Shell {
        let shell = Shell::of(&self.setup).replace("127.0.0.1:8081", &self.store_address.to_string());
        shell.replace("G4SF5wotz", &key[8..17]).replace("KEY_ID", &key[8..17]).set("KEY", key)
    }
}

/// Ships the audit of a gateway that is not started to a database.
pub fn ship(setup: &Setup, database: &str) {
    let sink = format!("{{ name: central, postgresql: {database} }}");
    setup.write(&setup.text().replace("path: audit }", &format!("path: audit, ship: [{sink}] }}")));
}

#[allow(clippy::print_stdout, reason = "the figures of the page")]
fn report(name: &str, time: Duration) {
    println!("{name}: {time:.1?}");
}

#[test]
fn leaked_key_is_revoked_as_the_page_says() {
    let office = Office::embedded();
    let key = office.key_in("acme");
    let gateway = office.setup.start();
    assert_eq!(office.status(&key), 200);
    let commands = [procedure("Procedures"), procedure("A leaked key")].concat().concat();
    report("a leaked key", office.shell(&key).typing(&key).follow(&commands));
    assert_eq!(office.status(&key), 401);
    gateway.stop();
}

#[test]
fn employee_is_removed_everywhere_as_the_page_says() {
    let office = Office::embedded();
    let key = office.key_in("acme");
    office.setup.ok(&["org", "create", "globex"]);
    office.setup.ok(&["user", "create", "--org", "globex", "Ada@example.com", "--permission", "queries:read"]);
    office.setup.ok(&["user", "create", "--org", "globex", "grace@example.com"]);
    let gateway = office.setup.start();
    let cookie = sign_in(&office.setup);
    let session = |office: &Office| {
        let fields = [("Cookie", cookie.as_str())];
        office.setup.client().request("GET", "/settings/keys", "", &fields, b"").status
    };
    assert_eq!((office.status(&key), session(&office)), (200, 200));
    report("an employee who leaves", office.shell(&key).follow(&procedure("An employee who leaves").concat()));
    assert_eq!((office.status(&key), session(&office)), (401, 303));
    gateway.stop();
}

/// A month has passed since three requests: the clock of the gateway is set back for them.
pub struct LastMonth {
    pub office: Office,
    pub gateway: Running,
    pub shell: Shell,
    /// The day of the requests.
    pub day: jiff::civil::Date,
}

impl LastMonth {
    pub fn new() -> Self {
        let office = Office::embedded();
        let key_file = office.setup.path().join("audit.key");
        office.setup.ok(&[
            "audit",
            "key",
            "new",
            "--out",
            key_file.to_str().unwrap(),
            "--name",
            "example.org/audit/gw-1",
        ]);
        let checkpoints = format!("path: audit, checkpoints: {{ key_file: {} }}", key_file.display());
        office.setup.write(&office.setup.text().replace("path: audit", &checkpoints));

        let now = Timestamp::now();
        let this = now.to_zoned(TimeZone::UTC).date().first_of_month();
        let last = this.checked_sub(Span::new().months(1)).unwrap();
        let day = last.checked_add(Span::new().days(14)).unwrap();
        let middle = day.to_zoned(TimeZone::UTC).unwrap().timestamp();
        let clock = SteppedClock::new();
        clock.step(middle.as_second() - now.as_second());
        let gateway = office.setup.start_by(clock.apply(&mut Command::new(KEYGATE)));
        let key = office.key_in("acme");
        for _ in 0..3 {
            assert_eq!(office.status(&key), 200);
        }
        let checkpoint = office.setup.path().join("audit/checkpoint");
        until("the last line is in a checkpoint", || checkpoint.exists().then_some(()));
        gateway.stop();
        let gateway = office.setup.start();
        let shell = office.shell(&key).replace("2026-11-01", &this.to_string());
        let shell = shell.replace("2026-10", &last.strftime("%Y-%m").to_string());
        Self { office, gateway, shell, day }
    }
}

#[test]
fn auditor_gets_records_and_proofs_as_the_page_says() {
    let month = LastMonth::new();
    report("an auditor's request", month.shell.follow(&procedure("An auditor's request").concat()));
    let mut files = fs::read_dir(month.office.setup.path()).unwrap().map(|entry| entry.unwrap().path());
    let proof = files.find(|path| path.extension().is_some_and(|extension| extension == "proof")).unwrap();
    assert!(fs::read_to_string(proof).unwrap().starts_with("c2sp.org/tlog-proof@v1\n"));
    month.gateway.stop();
}

#[test]
fn bill_of_a_month_is_made_as_the_page_says() {
    let month = LastMonth::new();
    report("a monthly bill", month.shell.follow(&procedure("A monthly bill").concat()));
    month.gateway.stop();
}
