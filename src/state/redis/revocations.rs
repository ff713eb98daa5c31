//! The revocations that this gateway has acknowledged, to be asserted again.
//!
//! Replication is asynchronous: a primary that is lost takes along what its replicas have not got yet, and the one that
//! follows it admits a revoked key. So every connection, before it serves, is told the revocations of this process once
//! more. They are final, so that telling them again never undoes what somebody else has changed since.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::Pipeline;
use redis::aio::MultiplexedConnection;

use super::changes::Draft;
use super::layout::Layout;
use super::script::Scripts;
use super::servers::{Common, ConnectError};
use crate::clock::Micros;
use crate::key::KeyId;

/// How many are kept, the newest. Enough for more than can be revoked in the seconds that a failover loses, and few
/// enough to be told within a fraction of a second.
const KEPT: usize = 10_000;
/// How many are told in one round trip.
const AT_ONCE: usize = 500;

/// What was acknowledged.
#[derive(Debug, Default)]
pub(super) struct Revocations(Mutex<VecDeque<Revocation>>);

/// A key that is refused for good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Revocation {
    pub(super) key: KeyId,
    /// The field that says so: `revoked`, or `removed` of its user.
    pub(super) field: &'static str,
    pub(super) at: Micros,
}

impl Revocations {
    /// Remembers one that was acknowledged.
    pub(super) fn add(&self, revocation: Revocation) {
        let mut kept = self.kept();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(revocation);
    }

    /// Tells a server all of them. What is not this server's, on a Cluster, it refuses by itself, and what it has
    /// already it leaves as it is.
    pub(super) async fn assert(
        &self,
        common: &Common,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), ConnectError> {
        let kept: Vec<Revocation> = self.kept().iter().copied().collect();
        let (layout, scripts) = (Layout::new(&common.settings.prefix), Scripts::new());
        for some in kept.chunks(AT_ONCE) {
            let mut pipeline = Pipeline::with_capacity(some.len());
            for revocation in some {
                let Some(draft) = draft(&layout, *revocation) else { continue };
                pipeline.add_command(draft.by_text(&scripts.commit));
            }
            connection.send_packed_commands(&pipeline, 0, pipeline.len()).await?;
        }
        Ok(())
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Revocation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The change that makes it so, where it is not so yet.
fn draft(layout: &Layout, revocation: Revocation) -> Option<Draft> {
    let mut draft = Draft::new(0);
    let record = draft.record(layout.key(revocation.key));
    draft.check(("present", record));
    draft.check(("none", record, revocation.field));
    draft.write(("set", record, revocation.field, revocation.at.0.to_string()));
    draft.stamp(record).ok()?;
    Some(draft)
}
