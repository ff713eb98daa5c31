//! The registration of this gateway among the live ones (`membership`), and its end.
//!
//! - It is renewed several times per lease time; at every [`retry_interval`] while not every gateway has seen every
//!   other one, or while Redis does not confirm it.
//! - It has a task of its own: no visit to a lease delays it.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::sleep;

use super::membership::Membership;
use super::slot_leases::SlotLeases;
use crate::redis::record_names::RecordNames;
use crate::redis::slot_numbers::gateways_slot;
use domain::clock::{self, Micros};
use redis_client::{CommandError, RedisClient};

/// Shortest interval until all gateways know of each other: they divide limits in an outage, which
/// may begin at any time.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The part of a retry interval that belongs to each gateway. A heartbeat reads the entries of all gateways, some 0.4
/// microseconds each: with 1,000 of them that start together, a thousand heartbeats a second take two fifths of the
/// server's time.
const RETRY_PART: Duration = Duration::from_millis(1);

/// Keeps this gateway registered for as long as the task lives.
pub(crate) async fn keep_registered(slots: Arc<SlotLeases>, client: RedisClient) {
    loop {
        let is_settled = slots.register(&client).await.unwrap_or(false);
        sleep(slots.next_heartbeat(is_settled)).await;
    }
}

/// Interval of heartbeats until the gateways know of each other: all together send at most a thousand a second.
fn retry_interval(gateways: u32) -> Duration {
    RETRY_INTERVAL.max(RETRY_PART * gateways)
}

impl SlotLeases {
    /// Reports all releases, deletes the entries of leases that hold nothing, and removes this gateway's registration,
    /// side by side: the registration may be on another node than the leases.
    pub(crate) async fn deregister(&self, client: &RedisClient) -> Result<(), CommandError> {
        let ((), deregistered) = tokio::join!(self.report_all(client), self.send_heartbeat(client, 0, [0; 2]));
        deregistered.map(drop)
    }

    /// Time until the next heartbeat; `is_settled` says that the last one was confirmed, and that every gateway has
    /// seen every other one.
    pub fn next_heartbeat(&self, is_settled: bool) -> Duration {
        let longest = self.settings.renew_interval();
        let gateways = self.membership().map_or(1, Membership::gateways);
        if is_settled { longest } else { retry_interval(gateways).min(longest) }
    }

    /// The latest join of all gateways that this one has seen, and its own while its entry should be live; zeros for
    /// none.
    pub fn joins_to_tell(&self, now: Micros) -> [u64; 2] {
        let Some(membership) = self.membership() else { return [0; 2] };
        let claimed = membership.claimed_join(self.settings.registration_micros(), now);
        // The others may have forgotten it: what it has seen says nothing any more.
        if claimed > 0 { [membership.latest_join, claimed] } else { [0; 2] }
    }

    /// Applies the reply to a heartbeat that began at `beat`, and told that this gateway had `seen` a join; times are
    /// steady. Returns whether every gateway has seen every other one; `None` when it is no such reply.
    pub fn complete_heartbeat(&self, reply: &[u8], beat: Micros, seen: u64, now: Micros) -> Option<bool> {
        let membership = Membership::decode(reply, beat)?;
        self.set_membership(membership.following(self.membership(), now));
        Some(membership.is_settled(seen))
    }

    /// Registers this gateway as live, and learns its place among the gateways. Returns whether every gateway has seen
    /// every other one.
    async fn register(&self, client: &RedisClient) -> Result<bool, CommandError> {
        // Read before the heartbeat: the entry lives no shorter than from here.
        let beat = clock::steady();
        let [seen, claimed] = self.joins_to_tell(beat);
        let reply = self.send_heartbeat(client, self.settings.registration_micros(), [seen, claimed]).await?;
        let Value::BulkString(packed) = reply else { return Err(CommandError::UnexpectedReply) };
        self.complete_heartbeat(&packed, beat, seen, clock::steady()).ok_or(CommandError::UnexpectedReply)
    }

    /// Runs `heartbeat.lua`. A lifetime of 0 removes the registration.
    async fn send_heartbeat(
        &self,
        client: &RedisClient,
        lifetime: u64,
        [seen, claimed]: [u64; 2],
    ) -> Result<Value, CommandError> {
        let (gateways, registry) = (self.names.gateways(), self.names.registry());
        let keys = [gateways.as_bytes(), registry.as_bytes()];
        let [lifetime, seen, claimed] = [lifetime, seen, claimed].map(|number| number.to_string());
        let arguments: [&[u8]; 4] = [&self.gateway_id, lifetime.as_bytes(), seen.as_bytes(), claimed.as_bytes()];
        client.run(gateways_slot(), &self.scripts.heartbeat, &keys, &arguments).await
    }
}

/// Notes in a new state that no gateway was there before: the first ones need not wait for any that they do not know.
pub(crate) async fn begin_registry(client: &RedisClient, names: &RecordNames) -> Result<(), CommandError> {
    client.query(redis::cmd("HSET").arg(names.registry()).arg(&["begun", "0", "whole_from", "0"])).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_of_gateways_that_start_together_are_bounded() {
        assert_eq!(retry_interval(1), RETRY_INTERVAL);
        for gateways in [100, 1_000, 5_000] {
            let a_second =
                Duration::from_secs(1).as_micros() / retry_interval(gateways).as_micros() * u128::from(gateways);
            assert!(a_second <= 1_000, "{a_second} heartbeats a second of {gateways} gateways");
        }
    }
}
