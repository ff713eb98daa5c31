//! The same random trace over both variants: every answer of one equals the answer of the other.
//!
//! The trace chooses the times; each key has a time of its own, which steps forward and back. In two points the
//! variants differ, and equality would cost a write for each refusal or a time in each change. The trace avoids
//! these two, and no others:
//!
//! - A refusal moves the bucket's time in the embedded state, and on Redis only when the clock was set back. Between a
//!   refusal and the next admission, a key's time does not step back behind the refusal.
//! - Another quota takes effect at the time of the process. It is given to a bucket that is full by then, or to one
//!   whose time is ahead, so that nothing flows in; and it is looked at from before it, so that the bucket's time
//!   is the trace's again.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::runtime::{block_on, enter};
use super::{embedded, redis};

mod steps;
mod worlds;

pub(super) use steps::quotas;
use worlds::Worlds;

/// Traces, and their steps. A trace takes some 20 ms.
const TRACES: u32 = 100;
const STEPS: usize = 80;

#[test]
fn both_variants_give_the_same_answers() {
    let _entered = enter();
    let (file, _dir) = embedded::opened();
    let (shared, _server) = redis::on_a_server();
    let mut runner = TestRunner::new(ProptestConfig { cases: TRACES, failure_persistence: None, ..Default::default() });
    let traces = prop::collection::vec(steps::steps(), 1..STEPS);
    let ran = runner.run(&traces, |trace| {
        block_on(async {
            let mut worlds = Worlds::new(&file, &shared).await;
            for step in trace {
                worlds.take(&step).await?;
            }
            worlds.end().await
        })
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
}
