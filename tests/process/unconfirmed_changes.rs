//! Changes that are made while too few replicas confirm them: what is printed, recorded, and left behind.

use domain::key::KeyDigest;
use journal::audit::{Filter, Reader, RecordKind};

use super::leaked_keys::sign_in;
use super::reload::ok;
use crate::support::redis::Redis;
use crate::support::{Setup, eventually};

/// Outcomes of the changes with this action, oldest first, once all have one.
fn outcomes(setup: &Setup, action: &str) -> Vec<String> {
    let mut outcomes = Vec::new();
    eventually("all changes have an outcome", || {
        let reader = Reader::open(&setup.path().join("audit")).unwrap();
        let filter = Filter { kind: Some(RecordKind::Change), ..Filter::default() };
        let records = reader.list(&filter, 1000, None).unwrap().records;
        let records = records.iter().rev().filter(|record| record.action == action);
        outcomes = records.map(|record| record.outcome.name().to_owned()).collect();
        !outcomes.iter().any(|outcome| outcome == "in_progress")
    });
    outcomes
}

#[test]
fn changes_without_replicas_are_unconfirmed_and_a_new_key_is_shown() {
    let servers = Redis::options().start_many(2);
    let [primary, replica] = &*servers else { panic!("two") };
    replica.cli::<()>(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    eventually("the replica follows", || replica.info("replication", "master_link_status") == "up");
    let upstream = ok();
    let durability = "durability: { replicas: 1, timeout: 500ms }";
    let state = format!("{{ redis: {{ url: '{}', deadline: 2s, {durability} }} }}", primary.url());
    let setup = Setup::with_state(upstream.address, &state, "session: { origin: http://127.0.0.1:8080 }");
    let gateway = setup.start();
    setup.ok(&["org", "create", "acme"]);
    setup.ok(&["user", "create", "--org", "acme", "ada@example.com", "--permission", "org:admin"]);
    let cookie = sign_in(&setup);
    let run = |arguments: &[&str]| {
        let output = setup.keygate(arguments);
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code().unwrap(), out.trim().to_owned(), err)
    };
    replica.stop_process();

    // A key and a secret are shown, with a warning, and are valid.
    let create = ["key", "create", "--org", "acme", "--user", "ada@example.com", "laptop"];
    let (code, key, said) = run(&create);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("warning: the change was made, but only 0 of 1 replica confirmed it in time"), "{said}");
    assert_eq!(setup.client().get("/", &key).status, 200);
    let (code, rotated, said) = run(&["key", "rotate", &key]);
    assert!(code == 0 && said.contains("a failover may undo it"), "{said}");
    assert_eq!((setup.client().get("/", &rotated).status, setup.client().get("/", &key).status), (200, 401));
    assert_eq!(outcomes(&setup, "key.create"), ["unconfirmed"]);
    assert_eq!(outcomes(&setup, "key.rotate"), ["unconfirmed"]);

    // The same by the API and by the form.
    let own = [("Sec-Fetch-Site", "same-origin"), ("Cookie", &*cookie)];
    let fields = [&own[..], &[("Content-Type", "application/json")]].concat();
    let created = setup.client().request("POST", "/settings/api/v1/orgs/acme/keys", "", &fields, b"{\"name\":\"api\"}");
    assert_eq!(created.status, 201);
    let created = created.json();
    assert!(created["warning"].as_str().unwrap().contains("a failover may undo it"), "{created}");
    assert_eq!(setup.client().get("/", created["key"].as_str().unwrap()).status, 200);
    let fields = [&own[..], &[("Content-Type", "application/x-www-form-urlencoded")]].concat();
    let led = setup.client().request("POST", "/settings/keys/new", "", &fields, b"name=page");
    let cookies = led.header("set-cookie").unwrap().split(';').next().unwrap();
    let cookies = format!("{cookie}; {cookies}");
    let fields = [("Sec-Fetch-Site", "same-origin"), ("Cookie", &*cookies)];
    let page = setup.client().request("GET", led.header("location").unwrap(), "", &fields, b"");
    let page = String::from_utf8(page.body).unwrap();
    assert!(page.contains("too few replicas confirmed it in time") && page.contains("sk_live_"), "{page}");

    // Another change is repeated, and makes nothing twice.
    let digest = KeyDigest::of(b"legacy-91c4").to_hex();
    let import = ["key", "import", "--org", "acme", "--user", "ada@example.com", "--sha256", &digest, "old"];
    let user = ["user", "create", "--org", "acme", "eve@example.com"];
    for (command, action) in
        [(&["org", "create", "globex"][..], "org.create"), (&user, "user.create"), (&import, "key.import")]
    {
        let (code, _, said) = run(command);
        assert!(code == 75 && said.contains("when the replicas are back, repeat it"), "{said}");
        let (code, _, said) = run(command);
        assert!(code == 1 && said.contains("already"), "{said}");
        let made = outcomes(&setup, action);
        assert_eq!(made[made.len() - 2..], ["unconfirmed", "client_error"], "{action}");
    }
    let id = &key["sk_live_".len()..][..9];
    for _ in 0..2 {
        assert_eq!(run(&["key", "revoke", id]).0, 75);
        assert_eq!(setup.client().get("/", &rotated).status, 401, "revoked all the same");
    }
    assert_eq!(outcomes(&setup, "key.revoke"), ["unconfirmed"; 2]);
    replica.resume();
    eventually("the replica confirms", || run(&["key", "revoke", id]).0 == 0);
    assert_eq!(outcomes(&setup, "key.revoke").last().unwrap(), "completed");
    let listed = setup.ok(&["audit", "list", "--outcome", "unconfirmed", "--limit", "100"]);
    assert!(listed.contains("key.create"), "{listed}");
    gateway.stop();
}
