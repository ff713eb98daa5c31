//! Keys that come from another gateway: the file of a thousand consumers is converted and applied by the commands, and
//! each key is admitted in the field in which clients send it there.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use domain::key::{KeyId, OrgTag, PlainKey};

use super::{bare, start};
use crate::support::redis::Redis;
use crate::support::{Client, Gateway, Random, Upstream};

const CONSUMERS: usize = 1000;

/// Runs a command that must succeed at a gateway, and returns its output.
fn keygate(gateway: &Gateway, line: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keygate"));
    command.args(line.split_whitespace()).current_dir(gateway.dir.path()).env("KEYGATE_CONFIG", "keygate.yaml");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Keys as Kong makes them, of 32 letters and digits, and of the texts that people choose.
fn keys(random: &mut Random) -> Vec<String> {
    const CHARACTERS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const OTHERS: &[u8] = b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    let mut keys = vec!["my-key".to_owned(), "x".to_owned(), "x".repeat(512)];
    // A key of another keygate, which went by way of Kong.
    let id = KeyId::generate(OrgTag::generate().unwrap()).unwrap();
    keys.push(PlainKey::generate(id).unwrap().expose().expose().to_owned());
    keys.extend(OTHERS.iter().map(|character| format!("k{}y", char::from(*character))));
    while keys.len() < CONSUMERS {
        keys.push((0..32).map(|_| char::from(CHARACTERS[random.index(CHARACTERS.len())])).collect());
    }
    keys
}

/// The keys as a file of Kong. Strings of JSON are strings of YAML.
fn kong_file(keys: &[String]) -> String {
    let mut text = "_format_version: \"3.0\"\nconsumers:\n".to_owned();
    for (number, key) in keys.iter().enumerate() {
        let key = serde_json::to_string(key).unwrap();
        let _ = writeln!(text, "- username: user-{number}\n  keyauth_credentials:\n  - key: {key}");
    }
    text
}

/// Asserts that each key of a thousand consumers is admitted after the two commands.
fn assert_admitted(gateway: &Gateway) {
    let keys = keys(&mut Random::new(7));
    fs::write(gateway.dir.path().join("kong.yaml"), kong_file(&keys)).unwrap();
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.send(bare("GET", "/", &[("apikey", "my-key")])).response().status, 401);
    let document = keygate(gateway, "convert kong kong.yaml --org acme");
    fs::write(gateway.dir.path().join("apply.yaml"), document).unwrap();
    let applied = keygate(gateway, "apply --file apply.yaml --yes");
    assert!(applied.ends_with("applied 2001 changes\n"), "{applied}");
    // A busy machine takes longer for it than a connection may be idle.
    client = Client::connect(gateway.address);
    for key in &keys {
        let response = client.send(bare("GET", "/", &[("apikey", key)])).response();
        assert_eq!(response.status, 200, "{key}");
    }
    let unknown = client.send(bare("GET", "/", &[("apikey", "my-keys")])).response();
    assert_eq!(unknown.status, 401);
    assert_eq!(keygate(gateway, "apply --file apply.yaml --yes"), "nothing to change\n");
}

#[test]
fn thousand_keys_of_kong_are_admitted_on_the_embedded_state() {
    let upstream = Upstream::start();
    assert_admitted(&start(&upstream));
}

#[test]
fn thousand_keys_of_kong_are_admitted_on_redis() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let state = format!("state: {{ redis: {{ url: '{}', deadline: 2s }} }}\n", redis.url());
    assert_admitted(&Gateway::with(&[upstream.address], &format!("{}{state}", super::BLOCKS)));
}
