//! A Redis that loses its data under four gateways with load: none says of a key that it is unknown, all of them say
//! what has happened, and all of them serve again when the data is back.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Four;
use crate::support::{Client, Setup, Upstream, eventually, metric};

/// Ends the load when it is dropped.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn ready(setup: &Setup) -> (u16, String) {
    let answer = Client::connect(setup.admin).get("/ready", "");
    (answer.status, String::from_utf8(answer.body).unwrap())
}

#[test]
fn lost_data_is_told_by_every_gateway_and_refuses_no_key_for_good() {
    let upstream = Upstream::start();
    let four = Four::start(&upstream, 4, "deadline: 2s", "limits: { key: { requests: 10000000, per: 1s } }");
    four.server.cli::<()>(&["SAVE"]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also when the test fails.
        let ending = OnDrop(&is_over);
        let loads: Vec<_> = four
            .setups
            .iter()
            .zip(&four.keys)
            .map(|(setup, key)| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut seen = BTreeSet::new();
                    let mut last = 0;
                    while !is_over.load(Ordering::SeqCst) {
                        last = setup.client().get("/x", key).status;
                        seen.insert(last);
                    }
                    (seen, last)
                })
            })
            .collect();
        four.server.cli::<()>(&["FLUSHALL"]);
        for setup in &four.setups {
            eventually("the gateway says that the state was lost", || {
                let (status, body) = ready(setup);
                status == 503 && body.contains("\"state_lost\"")
            });
            eventually("the metric counts it", || {
                metric(setup.admin, "keygate_state_errors_total{kind=\"lost\"}") > 0.0
            });
            let client = setup.client().get("/x", &four.keys[0]);
            assert_eq!((client.status, &*client.code()), (503, "state_unavailable"));
            assert!(client.header("retry-after").is_some());
            assert!(
                !setup
                    .keygate(&["key", "create", "--org", "acme", "--user", "ada@example.com", "new"])
                    .status
                    .success()
            );
            let doctor = String::from_utf8(setup.keygate(&["doctor"]).stdout).unwrap();
            assert!(doctor.contains("not ready: state_lost (it has no identity"), "{doctor}");
        }
        // The copy of before.
        four.server.restart();
        for setup in &four.setups {
            eventually("the gateway is ready again", || ready(setup).0 == 200);
            eventually("it serves", || setup.client().get("/x", &four.keys[0]).status == 200);
        }
        drop(ending);
        for load in loads {
            let (seen, last) = load.join().unwrap();
            assert!(seen.is_subset(&BTreeSet::from([200, 503])) && last == 200, "{seen:?}, {last} at the end");
        }
    });
}
