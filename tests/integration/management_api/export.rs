//! The state as a whole.

use std::thread;

use domain::management_token::TokenScope;
use serde_json::Value;

use super::fixture::Setup;

#[test]
fn export_is_whole_or_put_off() {
    for setup in Setup::both() {
        let (key, token) = (setup.gateway.key(), setup.program(None, &[TokenScope::StateExport]));
        let export = |_| {
            let answer = token.get("/state");
            if answer.status == 409 {
                assert_eq!(answer.code(), "export_in_progress");
                assert!(answer.header("retry-after").is_some());
                return false;
            }
            assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/x-ndjson")));
            let text = String::from_utf8(answer.body).unwrap();
            let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(lines[0]["format"], "keygate-state");
            assert_eq!(lines.last().unwrap()["end"]["keys"], 1);
            assert!(lines.iter().any(|line| line["key"]["id"] == key.id.to_string()) && !text.contains(&key.text));
            true
        };
        let made = thread::scope(|scope| {
            let clients: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..20).filter(|call| export(*call)).count())).collect();
            clients.into_iter().map(|client| client.join().unwrap()).sum::<usize>()
        });
        assert!(made > 0);
        assert!(export(0), "the turn is free again");
    }
}

#[test]
fn state_is_for_tokens_of_all_organizations_with_its_scope_alone() {
    let setup = Setup::embedded();
    let org = setup.gateway.key().org;
    let others: Vec<_> = TokenScope::ALL.into_iter().filter(|scope| *scope != TokenScope::StateExport).collect();
    assert_eq!(setup.program(None, &others).get("/state").code(), "missing_scope");
    let refused = setup.program(Some(&org.to_string()), &others).get("/state");
    assert_eq!(refused.status, 403, "{refused:?}");
}
