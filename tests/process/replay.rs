//! `keygate replay` on the journal of a real gateway, while it runs and from an export.

use std::process::Command;

use serde_json::{Value, json};

use super::shipping::ship_to;
use crate::support::page::block;
use crate::support::redis::Redis;
use crate::support::{Ended, KEYGATE, Postgresql, Setup, Upstream, eventually};

const LIMIT: &str = "requests: 100, per: 1h, burst: 20";
const BLOCKS: &str = "
limits: { key: { requests: 100, per: 1h, burst: 20 } }
routes: [{ name: admin, path: /admin, permission: 'admin:all' }, { name: rest, path: '/**' }]
";

fn replay(config: &str, arguments: &[&str]) -> Ended {
    Ended::of(Command::new(KEYGATE).args(["replay", "--config", config]).args(arguments).output().unwrap())
}

fn replay_json(config: &str, arguments: &[&str]) -> (i32, Value) {
    let ended = replay(config, &[arguments, &["--json"]].concat());
    (ended.code, serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}")))
}

#[test]
fn replay_tells_what_a_lower_limit_would_have_refused() {
    let upstream = Upstream::start();
    let (setup, many) = Setup::new(upstream.address, BLOCKS).and_key();
    let few = setup.ok(&["key", "create", "--org", "acme", "--user", "ada@example.com", "few"]);
    let gateway = setup.start();
    let mut client = setup.client();
    let statuses: Vec<u16> = (0..45).map(|_| client.get("/", &many).status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 20);
    for path in ["/"; 12].into_iter().chain(["/admin"; 3]) {
        client.get(path, &few);
    }
    drop(client);
    let refusals = || setup.ok(&["audit", "export", "--outcome", "rate_limited"]);
    eventually("the refusals of the second are recorded", || refusals().contains("\"count\":15"));

    let text = setup.text();
    let [same, half, open] = [
        text.clone(),
        text.replace(LIMIT, "requests: 50, per: 1h, burst: 10"),
        text.replace(", permission: 'admin:all'", ""),
    ];
    let write = |name: &str, text: &str| {
        let path = setup.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    assert!(half.contains("requests: 50") && open != text);
    let [same, half, open] = [write("same.yaml", &same), write("half.yaml", &half), write("open.yaml", &open)];

    let (code, unchanged) = replay_json(&same, &[]);
    assert_eq!((code, &unchanged["changed"]), (0, &json!(0)), "{unchanged}");
    assert_eq!((&unchanged["requests"], &unchanged["refused"]), (&json!(60), &json!(28)), "{unchanged}");

    let (code, halved) = replay_json(&half, &[]);
    assert_eq!((code, &halved["would_refuse"]), (3, &json!(40)), "{halved}");
    let cause = json!({ "recorded": "admitted", "replayed": "rate_limited", "requests": 12 });
    assert_eq!(halved["causes"], json!([cause]), "{halved}");
    let changes =
        |key: &str, refused: u64| json!({ "key_id": &key[8..17], "refused": refused, "admitted": 0, "other_cause": 0 });
    assert_eq!(halved["keys"], json!([changes(&many, 10), changes(&few, 2)]));
    let (code, of_few) = replay_json(&half, &["--key", &few[8..17]]);
    assert_eq!((code, &of_few["requests"], &of_few["keys"]), (3, &json!(15), &json!([changes(&few, 2)])), "{of_few}");

    // The command of the page.
    std::fs::copy(&open, setup.path().join("new.yaml")).unwrap();
    let line = block("keygate replay --config new.yaml --since");
    let mut command = Command::new(KEYGATE);
    let opened = Ended::of(command.args(line.split_whitespace().skip(1)).current_dir(setup.path()).output().unwrap());
    assert_eq!(opened.code, 3, "{opened:?}");
    assert!(opened.out.lines().any(|line| line == "forbidden  admitted  3"), "{opened:?}");
    assert!(opened.err.contains("keygate: 3 requests would be decided otherwise"), "{opened:?}");
    assert!(opened.err.contains("decided at the time of the last one: 14 refusals"), "{opened:?}");

    // Elsewhere: a copy of the journal, and an export.
    let export = setup.path().join("export");
    setup.ok(&["state", "export", "--out", export.to_str().unwrap()]);
    gateway.stop();
    let journal = setup.path().join("copied");
    std::fs::rename(setup.path().join("audit"), &journal).unwrap();
    let paths = ["--journal", journal.to_str().unwrap(), "--state", export.to_str().unwrap()];
    let (code, copied) = replay_json(&half, &paths);
    assert_eq!((code, &copied["keys"]), (3, &halved["keys"]), "{copied}");
    assert_eq!(replay(&same, &[&paths[..], &["--key", "abcDEF123"]].concat()).code, 1);
}

/// Of two gateways, whose records are in PostgreSQL and whose buckets are in Redis: neither journal has them all.
#[test]
fn replay_decides_the_records_of_all_gateways() {
    let (redis, server, upstream) = (Redis::start(), Postgresql::start(), Upstream::start());
    let state = format!("{{ redis: {{ url: '{}', deadline: 2s }} }}", redis.url());
    let set_up = |name: &str| {
        ship_to(Setup::with_state(upstream.address, &state, &format!("gateway: {name}\n{BLOCKS}")), &server)
    };
    let (one, key) = set_up("one").and_key();
    let two = set_up("two");
    let _running = [one.start(), two.start()];
    let mut clients = [one.client(), two.client()];
    let statuses: Vec<u16> = (0..30).map(|number| clients[number % 2].get("/", &key).status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 20);
    drop(clients);
    let replayed = |limit: &str| {
        let file = one.path().join("new.yaml");
        std::fs::write(&file, one.text().replace(LIMIT, limit)).unwrap();
        replay_json(file.to_str().unwrap(), &[])
    };
    let all = |report: &Value| (report["requests"].clone(), report["refused"].clone());
    eventually("the records of both are in PostgreSQL", || all(&replayed(LIMIT).1) == (json!(30), json!(10)));
    let (code, same) = replayed(LIMIT);
    assert_eq!((code, &same["changed"]), (0, &json!(0)), "{same}");
    let (code, halved) = replayed("requests: 50, per: 1h, burst: 10");
    assert_eq!((code, &halved["would_refuse"], &halved["changed"]), (3, &json!(20), &json!(10)), "{halved}");
}
