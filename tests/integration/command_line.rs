//! The command line of the real binary: what goes where, with and without a gateway, and the exit codes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;

use keygate::audit::{Outcome, Use, UseEnd};
use keygate::config::Config;
use keygate::identity::{AuthMethod, OrgId, UserId};
use keygate::key::{self, KeyDigest, KeyId};
use keygate::management::Management;
use keygate::metrics::Metrics;
use keygate::refusal::Refusal;
use keygate::state::{DecideRequest, Decision, RouteAccess};
use keygate::{admin, app, clock};
use serde_json::Value;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::support::until;

/// A configuration in a directory of its own.
struct Installation {
    directory: tempfile::TempDir,
    config: PathBuf,
}

/// What a command said and how it ended.
#[derive(Debug)]
struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Installation {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("keygate.yaml");
        let text = "\
listen: [{ address: 127.0.0.1:0 }]
admin: { socket: admin.sock, address: 127.0.0.1:1 }
upstream: { endpoints: [http://127.0.0.1:8081] }
state: { embedded: { path: state.db } }
audit: { path: audit }
";
        std::fs::write(&config, text).unwrap();
        Self { directory, config }
    }

    fn run(&self, line: &str) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keygate"));
        ended(command.args(line.split_whitespace()).arg("--config").arg(&self.config).output().unwrap())
    }

    /// Runs a command that must succeed. A process that is started beside this, by another test, has what this one has
    /// open until it runs its program, so a state that was closed may stay locked for a moment.
    fn ok(&self, line: &str) -> Ended {
        let ended = until("nobody has the state", || {
            let ended = self.run(line);
            (!ended.err.contains("in use by another process")).then_some(ended)
        });
        assert_eq!(ended.code, 0, "{line}: {ended:?}");
        ended
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{line} --json")).out).unwrap()
    }

    /// Creates acme, its user ada, and a key of hers; what was printed of the key.
    fn with_key(&self) -> String {
        self.ok("org create acme");
        self.ok("user create --org acme ada@example.com --permission queries:read --permission queries:write");
        let created = self.ok("key create --org acme --user ada@example.com laptop");
        assert!(created.err.contains("shown only once"), "{created:?}");
        created.out
    }

    /// Uses a key, as a gateway would.
    fn with_use_of(&self, presented: &str) {
        let config = Config::load(&self.config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (state, journal) = app::open_and_recover(&config, &Metrics::new()).await.unwrap();
            let digest = KeyDigest::of(presented.as_bytes());
            let now = clock::now();
            let Decision::Admitted(admitted) = state
                .decide(DecideRequest { digest: &digest, id: None, access: RouteAccess::Everyone, now })
                .await
                .unwrap()
            else {
                panic!("admitted")
            };
            let opening = Use {
                id: Uuid::now_v7(),
                time: now,
                number: Some(admitted.number),
                key_id: admitted.principal.key_id,
                user_id: Some(admitted.principal.user_id),
                org_id: Some(admitted.principal.org_id),
                auth_method: AuthMethod::ApiKey,
                ip: None,
                user_agent: None,
                action: "GET /",
                method: "GET",
                path: "/",
                provisional: false,
            };
            drop(journal.begin(&opening).await.unwrap());
            drop(admitted);
            journal.close().await;
            state.close().await;
        });
    }

    /// Records a refusal of a key, as a gateway would.
    fn with_refusal_of(&self, key: KeyId, outcome: Outcome) {
        let config = Config::load(&self.config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (state, journal) = app::open_and_recover(&config, &Metrics::new()).await.unwrap();
            let opening = Use {
                id: Uuid::now_v7(),
                time: clock::now(),
                number: None,
                key_id: Some(key),
                user_id: None,
                org_id: None,
                auth_method: AuthMethod::ApiKey,
                ip: None,
                user_agent: None,
                action: "GET /",
                method: "GET",
                path: "/",
                provisional: false,
            };
            let end = UseEnd { outcome, status: Some(401), duration_us: 1, request_bytes: 0, response_bytes: 0 };
            journal.begin(&opening).await.unwrap().close(end);
            journal.close().await;
            state.close().await;
        });
    }

    /// Serves the admin socket, as a gateway would, while something is done.
    fn with_gateway<T>(&self, then: impl FnOnce() -> T) -> T {
        let config = Config::load(&self.config).unwrap();
        let (started, starting) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let gateway = thread::spawn(move || serve(&config, &started, stopped));
        starting.recv().unwrap();
        let done = then();
        stop.send(()).unwrap();
        gateway.join().unwrap();
        done
    }
}

fn serve(config: &Config, started: &std::sync::mpsc::Sender<()>, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let metrics = Metrics::new();
        let (state, journal) = app::open_and_recover(config, &metrics).await.unwrap();
        let management = Arc::new(Management::new(Arc::clone(&state), journal.clone(), &config.audit, &metrics.state));
        let listener = admin::bind_socket(&config.admin.socket).unwrap();
        started.send(()).unwrap();
        let status = admin::ConfigReport {
            path: config.source.path.clone(),
            sha256: config.source.hash.to_string(),
            applied: clock::now().to_string(),
            last_error: None,
        };
        let status = Arc::new(admin::ConfigStatus::new(status));
        admin::serve_socket(listener, management, status, async { drop(stopped.await) }).await;
        journal.close().await;
        state.close().await;
    });
}

fn ended(output: Output) -> Ended {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn a_key_is_printed_alone_listed_and_revoked() {
    let installation = Installation::new();
    let printed = installation.with_key();
    let presented = printed.strip_suffix('\n').unwrap();
    let id = key::parse(presented.as_bytes()).unwrap();
    assert_eq!(presented.len(), key::KEY_LENGTH);

    let listed = installation.json("key list --org acme");
    assert_eq!(listed["keys"][0]["id"], id.as_str());
    assert_eq!(listed["keys"][0]["status"], "active");
    assert!(!listed.to_string().contains(&presented[18..]));
    let table = installation.ok("key list --org acme").out;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("ID         NAME    USER             STATUS  LIMIT"), "{table}");
    assert!(lines[1].contains("ada@example.com  active  1000 per 1h, burst 1000"), "{table}");

    installation.ok(&format!("key revoke {id}"));
    assert_eq!(installation.json(&format!("key show {id}"))["key"]["status"], "revoked");
    let again = installation.run(&format!("key rotate {id}"));
    assert_eq!((again.code, again.out.as_str()), (1, ""));
    assert_eq!(again.err, format!("keygate: key {id} is revoked, for good; create another\n"));
}

#[test]
fn json_is_one_object_with_the_key() {
    let installation = Installation::new();
    installation.with_key();
    let created = installation.ok("key create --org acme --user ada@example.com --json second");
    assert_eq!(created.err, "");
    let created: Value = serde_json::from_str(&created.out).unwrap();
    let id = key::parse(created["api_key"].as_str().unwrap().as_bytes()).unwrap();
    assert_eq!(created["key"]["id"], id.as_str());
    let rotated = installation.json(&format!("key rotate {id} --overlap 1h"));
    assert_ne!(rotated["api_key"], created["api_key"]);
    assert!(rotated["key"]["previous_until"].is_string());
    let limited = installation.json(&format!("key limits {id} --requests 5 --per 1m"));
    assert_eq!(limited["key"]["limits"], serde_json::json!({"requests": 5, "per": "1m", "burst": 5, "own": true}));
    assert_eq!(installation.json(&format!("key limits {id}"))["key"]["limits"]["own"], true, "without options: a look");
    assert_eq!(installation.json(&format!("key limits {id} --default"))["key"]["limits"]["own"], false);
}

#[test]
fn offline_and_online_give_the_same() {
    let installation = Installation::new();
    installation.with_key();
    let look = |line: &str| installation.json(line);
    let lines = ["org list", "user list --org acme", "key list --org acme"];
    let offline = lines.map(look);
    let online = installation.with_gateway(|| lines.map(look));
    assert_eq!(offline, online);
    let refused = "key create --org none --user x y";
    let offline = installation.run(refused);
    let online = installation.with_gateway(|| installation.run(refused));
    assert_eq!((offline.code, &offline.err), (online.code, &online.err));
    assert_eq!(offline.code, 1);

    installation.with_gateway(|| installation.ok("org suspend acme"));
    assert_eq!(installation.json("org show acme")["org"]["suspended"], true, "what was done online stays");
}

#[test]
fn a_state_in_use_without_a_socket_is_a_clear_error() {
    let installation = Installation::new();
    installation.with_gateway(|| {
        std::fs::remove_file(installation.directory.path().join("admin.sock")).unwrap();
        let ended = installation.run("org list");
        assert_eq!(ended.code, 75, "{ended:?}");
        assert!(ended.err.contains("does not listen on") && ended.err.contains("in use"), "{ended:?}");
        assert!(ended.err.contains("restart the gateway"), "{ended:?}");
    });
}

/// A crash is the state's file as it was before a use that the journal has.
#[test]
fn uses_before_a_crash_are_replayed_offline_too() {
    let installation = Installation::new();
    let printed = installation.with_key();
    let presented = printed.trim();
    let id = key::parse(presented.as_bytes()).unwrap();
    let state = installation.directory.path().join("state.db");
    let before = std::fs::read(&state).unwrap();
    installation.with_use_of(presented);
    std::fs::write(&state, before).unwrap();
    assert_eq!(installation.json(&format!("key show {id}"))["key"]["uses"], 1);
    let explained = installation.json(&format!("explain {id}"));
    assert_eq!(explained["explanation"]["standing"]["remaining"], 999, "the bucket is no fuller than it was");
}

#[test]
fn the_audit_tells_what_was_done() {
    let installation = Installation::new();
    let printed = installation.with_key();
    let id = key::parse(printed.trim().as_bytes()).unwrap();
    let records = installation.json("audit list")["records"].clone();
    let actions: Vec<&str> = records.as_array().unwrap().iter().map(|r| r["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["key.create", "user.create", "org.create"], "newest first");

    let of_key = installation.json(&format!("audit list --key {id}"));
    assert_eq!(of_key["records"].as_array().unwrap().len(), 1);
    let of_user = installation.json("audit list --org acme --user ada@example.com --since 1h");
    assert_eq!(of_user["records"].as_array().unwrap().len(), 2);
    let before = installation.ok("audit list --until 1h");
    assert_eq!((before.out.as_str(), before.err.as_str()), ("", "there are no such records\n"));

    let exported = installation.ok("audit export").out;
    let first: Value = serde_json::from_str(exported.lines().next().unwrap()).unwrap();
    assert_eq!((exported.lines().count(), first["action"].as_str()), (3, Some("org.create")));
    let table = installation.ok("audit list --limit 1").out;
    assert!(table.lines().nth(1).unwrap().contains("completed  200"), "{table}");

    let explained = installation.ok(&format!("explain {id}")).out;
    assert!(
        explained.starts_with("requests are admitted, to routes with these permissions: queries:read"),
        "{explained}"
    );
    assert!(explained.contains("1000 of 1000 tokens") && !explained.contains("key.create"), "{explained}");
    assert_eq!(installation.json(&format!("explain {id}"))["decisions"], serde_json::json!([]), "requests only");
    installation.with_use_of(printed.trim());
    assert_eq!(installation.json(&format!("explain {id}"))["decisions"][0]["action"], "GET /");
}

#[test]
fn records_are_found_by_request_and_outcome() {
    let installation = Installation::new();
    let printed = installation.with_key();
    installation.with_use_of(printed.trim());
    let listed = installation.ok("audit list --json --outcome aborted").out;
    let [id, time, key] = ["\"id\":", "\"time\":", "\"key_id\":"].map(|name| listed.find(name).unwrap());
    assert!(id < time && time < key, "in the contract's order: {listed}");
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["records"].as_array().unwrap().len(), 1);
    let id = listed["records"][0]["id"].as_str().unwrap();
    assert_eq!(installation.json(&format!("audit list --id {id}")), listed);
    assert_eq!(installation.ok(&format!("audit export --id {id} --outcome completed")).out, "");

    for (line, told) in [
        ("audit list --outcome gone", "give one of in_progress, completed"),
        ("audit verify --since 1h", "unexpected argument"),
        ("audit list --since 1h --until 2h", "--since is not before --until"),
    ] {
        let refused = installation.run(line);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.err.contains(told), "{refused:?}");
    }
}

#[test]
fn a_replaced_secret_that_is_still_used_is_explained() {
    let installation = Installation::new();
    let printed = installation.with_key();
    let id = key::parse(printed.trim().as_bytes()).unwrap();
    let rotated = installation.ok(&format!("key rotate {id}"));
    assert!(rotated.err.contains("the old secret is refused from now on"), "{rotated:?}");
    let before = installation.ok(&format!("explain {id}")).out;
    assert!(before.contains("old secret valid until  20") && !before.contains("replaced"), "{before}");
    installation.with_refusal_of(id, Outcome::Refused(Refusal::Expired));
    let after = installation.ok(&format!("explain {id}")).out;
    assert!(after.lines().next().unwrap().contains("requests with the replaced secret are refused (401)"), "{after}");
}

#[test]
fn a_damaged_journal_does_not_verify() {
    let installation = Installation::new();
    installation.with_key();
    let sound = installation.ok("audit verify").out;
    assert!(sound.contains(" 3 records (0 open)") && sound.contains(" 0 problems"), "{sound}");
    let segment = first_segment(&installation.directory.path().join("audit"));
    let text = std::fs::read_to_string(&segment).unwrap();
    std::fs::write(&segment, text.replacen("user.create", "user.delete", 1)).unwrap();
    let damaged = installation.run("audit verify");
    assert_eq!(damaged.code, 1, "{damaged:?}");
    assert!(damaged.out.contains("segment 1 line"), "{damaged:?}");
}

#[test]
fn limits_say_whether_they_are_configured() {
    let installation = Installation::new();
    let printed = installation.with_key();
    let id = key::parse(printed.trim().as_bytes()).unwrap();
    assert!(installation.ok("org show acme").out.contains("concurrent  100 (as configured)"));
    assert!(installation.ok(&format!("key show {id}")).out.contains("1000 per 1h, burst 1000 (as configured)"));
    let org = installation.json("org limits acme --concurrent 7")["org"].clone();
    assert_eq!((&org["concurrent"], &org["concurrent_in_force"]), (&Value::from(7), &Value::from(7)));
    let org = installation.json("org limits acme --default")["org"].clone();
    assert_eq!((&org["concurrent"], &org["concurrent_in_force"]), (&Value::Null, &Value::from(100)));
    installation.ok(&format!("key limits {id} --requests 5"));
    let listed = installation.ok("key list --org acme");
    assert!(listed.out.contains("5 per 1h, burst 5*") && listed.err.contains("* own limit"), "{listed:?}");
}

#[test]
fn wrong_values_end_with_2_and_say_what_to_give() {
    let installation = Installation::new();
    let printed = installation.with_key();
    let id = key::parse(printed.trim().as_bytes()).unwrap();
    let import = "key import --org acme --user ada@example.com --sha256";
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let imported = installation.json(&format!("{import} {digest} old"))["key"]["id"].as_str().unwrap().to_owned();
    let lines = [
        (2, format!("{import} abc old"), "64 hexadecimal digits".to_owned()),
        (1, format!("{import} {digest} again"), format!("imported or made already, as key {imported}")),
        (2, "user create --org acme nobody".into(), "is not an email address".into()),
        (2, format!("key limits {id} --requests 0"), "requests must be".into()),
        (2, format!("key rotate {id} --overlap 400d"), "overlap must be at most 366d".into()),
        (1, "key show abcDEF123".into(), "`keygate key list --org ORG`".into()),
        (1, "key create --org acme --user bob x".into(), "`keygate user list --org ORG`".into()),
    ];
    let check = || {
        for (code, line, told) in &lines {
            let refused = installation.run(line);
            assert_eq!(refused.code, *code, "{line}: {refused:?}");
            assert!(refused.err.contains(told) && !refused.err.contains("letters and digits"), "{refused:?}");
        }
    };
    check();
    installation.with_gateway(check);
}

#[test]
fn a_journal_without_any_segment_verifies_only_when_it_was_never_written() {
    let installation = Installation::new();
    let audit = installation.directory.path().join("audit");
    std::fs::create_dir(&audit).unwrap();
    installation.ok("audit verify");
    installation.with_key();
    for entry in std::fs::read_dir(&audit).unwrap().map(Result::unwrap) {
        if entry.path().extension().is_some_and(|e| e == "jsonl") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let deleted = installation.run("audit verify");
    assert_eq!(deleted.code, 1, "{deleted:?}");
    assert!(deleted.out.contains("there is an index but no segment"), "{deleted:?}");
}

/// The oldest segment that holds a user's creation.
fn first_segment(directory: &Path) -> PathBuf {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect();
    segments.sort();
    let holds = |path: &PathBuf| std::fs::read_to_string(path).unwrap().contains("user.create");
    segments.into_iter().find(holds).unwrap()
}

#[test]
fn a_whole_key_stands_for_its_id_and_is_never_echoed() {
    let installation = Installation::new();
    let printed = installation.with_key();
    let presented = printed.trim();
    let secret = &presented[18..];
    let id = key::parse(presented.as_bytes()).unwrap();
    assert_eq!(installation.json(&format!("key show {presented}"))["key"]["id"], id.as_str());
    assert_eq!(installation.json(&format!("explain {presented}"))["explanation"]["key"]["id"], id.as_str());
    let of_key = installation.json(&format!("audit list --key {presented}"));
    assert_eq!(of_key["records"].as_array().unwrap().len(), 1);

    // With its last character missing, where no key belongs, and where a name does.
    let torn = &presented[..presented.len() - 1];
    let lines = [
        (2, format!("key show {torn}")),
        (2, format!("key revoke {torn}")),
        (2, format!("audit list --key {torn}")),
        (2, format!("org list {presented}")),
        (2, presented.to_owned()),
        (1, format!("org show {presented}")),
    ];
    for (code, line) in lines {
        let refused = installation.run(&line);
        assert_eq!(refused.code, code, "{line}: {refused:?}");
        assert!(!refused.err.contains(&secret[..20]) && refused.out.is_empty(), "{refused:?}");
    }
    let refused = installation.run(&format!("key show {torn}")).err;
    assert!(refused.contains("give the nine characters that follow sk_live_"), "{refused}");
}

#[test]
fn exit_codes_tell_what_happened() {
    let installation = Installation::new();
    let checked = installation.ok("check");
    assert!(checked.out.ends_with("keygate.yaml: ok\n"), "{checked:?}");
    assert_eq!(installation.run("org show nobody").code, 1);
    assert_eq!(installation.run("org").code, 2);
    assert_eq!(installation.run("key show sk").code, 2);
    let health = installation.run("health");
    assert_eq!(health.code, 69, "{health:?}");
    assert!(health.err.contains("http://127.0.0.1:1/ready cannot be reached: "), "{health:?}");

    let empty = installation.ok("org list");
    assert_eq!((empty.out.as_str(), empty.err.as_str()), ("", "there are no organizations yet\n"));

    let text = std::fs::read_to_string(&installation.config).unwrap();
    std::fs::write(&installation.config, text.replace("listen", "listn").replace("audit: {", "audit: { x: 1,"))
        .unwrap();
    for command in ["check", "org list"] {
        let wrong = installation.run(command);
        assert_eq!((wrong.code, wrong.out.as_str()), (64, ""));
        let lines: Vec<&str> = wrong.err.lines().collect();
        assert!(lines[0].ends_with("keygate.yaml:1:1: listen: is missing; it has no default"), "{wrong:?}");
        assert!(lines[1].ends_with("keygate.yaml:1:1: listn: is not a known key; did you mean `listen`?"), "{wrong:?}");
        assert!(lines[2].contains("keygate.yaml:5:10: audit.x: is not a known key"), "{wrong:?}");
    }
}

#[test]
fn the_query_store_names_itself_and_tells_what_it_seeded() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("query-store.yaml");
    std::fs::write(&config, "store: { sqlite: { path: queries.db } }\n").unwrap();
    let run = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_query-store"));
        ended(command.args(line.split_whitespace()).arg("--config").arg(&config).output().unwrap())
    };
    assert!(run("--version").out.starts_with("query-store "));
    let (org, user) = (OrgId::generate(), UserId::generate());
    let seeded = run(&format!("seed --org {org} --user {user} --count 3"));
    assert_eq!((seeded.code, seeded.out.as_str()), (0, ""));
    assert!(seeded.err.starts_with(&format!("stored 3 queries of {org} in ")), "{seeded:?}");
    assert_eq!(run(&format!("seed --org {org} --user {user} --count 0")).code, 2);
}
