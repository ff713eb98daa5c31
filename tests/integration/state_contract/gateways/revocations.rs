//! Revocations: acknowledged by one gateway, they hold on all.

use std::sync::Arc;
use std::time::Duration;

use domain::clock;
use domain::refusal::Refusal;
use futures_util::{StreamExt as _, stream};
use state::{Change, Decision, State};

use super::{ask, open_four, shipped};
use crate::state_contract::fixture::{HeldKey, new_fixture};
use crate::state_contract::redis::enter_with_server;
use crate::state_contract::runtime::block_on;

const TRIALS: usize = 10_000;
/// Concurrent trials: enough to keep all gateways busy.
const CONCURRENT_TRIALS: usize = 64;

#[test]
fn revoked_key_is_admitted_by_no_gateway() {
    let (_entered, server) = enter_with_server();
    block_on(async {
        let gateways = open_four(&shipped(&server, Duration::from_secs(10))).await;
        let fixture = new_fixture(&gateways[0]).await;
        let limit = Change::limit_org(fixture.org, Some(1_000_000));
        gateways[0].change(limit).await.unwrap();
        let (fixture, gateways) = (&fixture, &gateways);
        let keys = stream::iter(0..TRIALS).map(async |trial| {
            let key = fixture.key(&gateways[trial % 4]).await;
            for gateway in gateways {
                assert!(matches!(ask(gateway, &key.digest).await, Ok(Decision::Admitted(_))));
            }
            key
        });
        let keys: Vec<HeldKey> = keys.buffer_unordered(CONCURRENT_TRIALS).collect().await;
        let trials = keys.iter().enumerate().map(|(trial, key)| revoke_and_use(gateways, trial % 4, key));
        let uses: usize =
            stream::iter(trials).buffer_unordered(CONCURRENT_TRIALS).fold(0, async |sum, uses| sum + uses).await;
        assert_eq!(uses, TRIALS * 3);
    });
}

/// Revokes a key through one gateway, and uses it through the others as soon as that returns.
async fn revoke_and_use(gateways: &[Arc<State>], by: usize, key: &HeldKey) -> usize {
    gateways[by].change(Change::RevokeKey { key: key.id, at: clock::now() }).await.unwrap();
    let others = gateways.iter().enumerate().filter(|(number, _)| *number != by);
    let uses = others.map(|(_, gateway)| ask(gateway, &key.digest));
    let answers = futures_util::future::join_all(uses).await;
    for answer in &answers {
        assert!(matches!(answer, Ok(Decision::Denied { refusal: Refusal::Revoked, .. })), "{answer:?}");
    }
    answers.len()
}
