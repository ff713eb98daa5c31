//! The state as a whole, of a gateway elsewhere.

use super::*;

#[test]
fn export_is_that_of_the_socket_and_is_verified_over_the_network() {
    let fixture = Fixture::start();
    let key = fixture.gateway.key();
    fixture.token("backup", "token create backup --allow state:export");
    let [local, remote] = [fixture.local("state export"), fixture.with_token("backup", "state export", "")];
    assert_eq!((local.code, remote.code, &*remote.err), (0, 0, ""), "{remote:?}");
    let lines = |ended: &Ended| ended.out.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&remote), lines(&local), "all but the line with the time");
    assert!(remote.out.contains(&key.id.to_string()) && !remote.out.contains(&key.text), "no secret");
    let file = fixture.write("state.jsonl", &remote.out);
    let verify = format!("state verify {}", file.display());
    assert_eq!(fixture.with_token("backup", &verify, "").code, 0);
    let records = fixture.json("audit list");
    let exports = records["records"].as_array().unwrap().iter().filter(|record| record["action"] == "state.export");
    assert_eq!(exports.filter(|record| record["token_id"].is_string()).count(), 2, "{records}");
}

#[test]
fn export_needs_its_scope_and_an_import_the_machine() {
    let fixture = Fixture::start();
    fixture.gateway.key();
    let refused = fixture.remote("state export");
    assert!(refused.code == 1 && refused.out.is_empty() && refused.err.contains("`state:export`"), "{refused:?}");
    let file = fixture.write("state.jsonl", &fixture.local("state export").out);
    let refused = fixture.remote(&format!("state import {}", file.display()));
    assert!(refused.code == 2 && refused.err.contains("on the machine of the gateway"), "{refused:?}");
}
