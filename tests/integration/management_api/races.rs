//! A token that is revoked during calls changes nothing afterwards, at any gateway.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use domain::management_token::TokenScope;
use serde_json::json;

use super::fixture::Setup;
use crate::support::{SetOnDrop, eventually};

/// Rounds, each with a token of its own.
const ROUNDS: usize = 8;

/// Keys of an organization, by a program that may read them.
fn count(setup: &Setup, org: &str) -> usize {
    let program = setup.program(Some(org), &[TokenScope::KeysRead]);
    let mut path = format!("/orgs/{org}/keys?limit=100");
    let mut count = 0;
    loop {
        let page = program.get(&path).json();
        count += page["items"].as_array().unwrap().len();
        let Some(cursor) = page["nextCursor"].as_str() else { return count };
        path = format!("/orgs/{org}/keys?limit=100&cursor={cursor}");
    }
}

#[test]
fn revoked_token_changes_nothing_after_its_revocation() {
    for setup in Setup::both() {
        let org = setup.org("acme");
        let other = setup.redis.is_some().then(|| setup.another());
        let addresses = [setup.api(), other.as_ref().map_or(setup.api(), |other| other.addresses()[1])];
        let body = json!({ "name": "k", "user": "ada@acme.example" });
        for round in 0..ROUNDS {
            // Half of them are of all organizations.
            let program = setup.program((round % 2 == 0).then_some(&*org), &[TokenScope::KeysCreate]);
            let path = format!("/orgs/{org}/keys");
            let before = count(&setup, &org);
            let ended = AtomicBool::new(false);
            let after = thread::scope(|scope| {
                let _end = SetOnDrop(&ended);
                let made: Vec<_> = (0..6)
                    .map(|number| {
                        let program = program.at(addresses[number % 2]);
                        let (path, body, ended) = (&path, &body, &ended);
                        scope.spawn(move || {
                            let mut made = 0;
                            for _ in 0..200 {
                                let answer = program.post(path, body);
                                if answer.status == 201 {
                                    made += 1;
                                    continue;
                                }
                                // Of an address, more wrong tokens than a few are refused before they are looked up.
                                let refusals = ["invalid_token", "too_many_attempts", "too_many_requests"];
                                assert!(refusals.contains(&&*answer.code()), "{answer:?}");
                                if ended.load(Ordering::Relaxed) {
                                    break;
                                }
                            }
                            made
                        })
                    })
                    .collect();
                eventually("keys are created", || count(&setup, &org) > before + 5);
                setup.revoke(&program);
                let after = count(&setup, &org);
                ended.store(true, Ordering::Relaxed);
                assert!(made.into_iter().map(|made| made.join().unwrap()).sum::<usize>() > 0);
                after
            });
            assert_eq!(count(&setup, &org), after, "a key was created after the revocation, in round {round}");
        }
    }
}
