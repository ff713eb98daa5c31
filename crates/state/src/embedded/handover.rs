//! Handing the state over to another process, the successor, which decides from then on.
//!
//! ```text
//! Serving --freeze--> Frozen --hand over--> HandedOver
//!    ^------unfreeze----|
//! ```
//!
//! - While the state is frozen, requests wait: they are decided here or by the successor, and none fails.
//! - Freezing is a barrier only together with the workers: a decision that has begun before is seen when its worker
//!   has run another task.
//! - After the hand-over, requests that still arrive on connections of this process are decided by the successor, whose
//!   counters are the only ones that count.

use std::sync::atomic::Ordering;
use std::sync::mpsc as std_mpsc;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::budgets::Settlement;
use super::decision_codec::DecisionRecord;
use super::successor::{HandoverPhase, OwnedDecideRequest, Successor, SuccessorRequest};
use super::{Embedded, OpenError, Permit};
use crate::{DecideRequest, Decision, RevocationEntry, Session, Unavailable};
use domain::clock::Micros;
use domain::identity::OrgId;
use domain::key::{KeyDigest, KeyId};
use domain::session::TokenDigest;

impl Embedded {
    /// Returns whether requests are not decided here, but wait or go to the successor. A worker sees a freeze at its
    /// next decision after it has run another task.
    pub(crate) fn is_frozen(&self) -> bool {
        self.handover.is_frozen.load(Ordering::Relaxed)
    }

    /// Decides a request while the state is frozen, or handed over: by the successor, or here when no
    /// hand-over comes of it.
    pub(crate) async fn decide_after_handover(&self, request: DecideRequest<'_>) -> Result<Decision, Unavailable> {
        let Some(successor) = self.handover.successor().await else { return Ok(self.decide(request)) };
        let (reply, answer) = oneshot::channel();
        let request = SuccessorRequest::Decide(Box::new(OwnedDecideRequest::new(request)), reply);
        successor.send(request).map_err(|_| Unavailable::Unreachable)?;
        answer.await.map_err(|_| Unavailable::Unreachable)
    }

    /// Finds a session while the state is frozen, or handed over.
    pub(crate) async fn session_after_handover(
        &self,
        digest: &TokenDigest,
        now: Micros,
    ) -> Result<Option<Session>, Unavailable> {
        let Some(successor) = self.handover.successor().await else { return Ok(self.session(digest, now)) };
        let (reply, answer) = oneshot::channel();
        successor.send(SuccessorRequest::Session(*digest, now, reply)).map_err(|_| Unavailable::Unreachable)?;
        answer.await.map_err(|_| Unavailable::Unreachable)
    }

    /// Writes back what the file lacks, while decisions go on: little is left then for [`Embedded::pause_writing`],
    /// during which requests wait.
    pub async fn write_back(&self) {
        self.writer.write_back().await;
    }

    /// Decides nothing from now on: requests wait. Decisions that have begun may go on until their
    /// workers run another task.
    pub fn freeze(&self) {
        debug_assert!(matches!(*self.handover.phase.borrow(), HandoverPhase::Serving), "only a serving state freezes");
        self.handover.phase.send_replace(HandoverPhase::Frozen);
        self.handover.is_frozen.store(true, Ordering::SeqCst);
    }

    /// Writes back what the file lacks, and writes nothing from then on until [`Embedded::unfreeze`]: another process
    /// may open the file. Call when no worker decides any more.
    ///
    /// # Errors
    /// When something could not be written back.
    pub async fn pause_writing(&self) -> Result<(), Unavailable> {
        let (resume, resumed) = std_mpsc::channel();
        // Before the wait: a caller that gives it up can still have the writer go on.
        *self.handover.writer() = Some(resume);
        let flushed = self.writer.pause(resumed).await;
        if flushed { Ok(()) } else { Err(Unavailable::ErrorReply) }
    }

    /// Goes on as before [`Embedded::freeze`].
    pub fn unfreeze(&self) {
        let is_handed_over = matches!(*self.handover.phase.borrow(), HandoverPhase::HandedOver(_));
        debug_assert!(!is_handed_over, "two processes would decide");
        if let Some(resume) = self.handover.writer().take() {
            // The thread waits for this, or has ended.
            resume.send(()).ok();
        }
        self.handover.is_frozen.store(false, Ordering::SeqCst);
        self.handover.phase.send_replace(HandoverPhase::Serving);
    }

    /// Has the successor decide from now on, which holds the lock. This process writes no more; changes fail.
    pub fn hand_over(&self, successor: Successor) {
        debug_assert!(matches!(*self.handover.phase.borrow(), HandoverPhase::Frozen), "only a frozen state leaves");
        self.handover.writer().take();
        self.lock.leave();
        self.directory.budgets.hand_over(successor.clone());
        self.handover.phase.send_replace(HandoverPhase::HandedOver(successor));
    }

    /// A copy of the lock's file. Who has it holds the lock as long as this process does, and longer.
    ///
    /// # Errors
    /// [`OpenError::Io`] when there are too many open files.
    pub fn share_lock(&self) -> Result<std::fs::File, OpenError> {
        self.lock.share()
    }

    /// The successor's decision about a request that came here, whose slot has this number, to be sent to `released`;
    /// none when it is of another version.
    pub fn adopt(
        &self,
        decision: DecisionRecord,
        digest: KeyDigest,
        number: u64,
        released: &UnboundedSender<u64>,
    ) -> Option<Decision> {
        decision.into_decision(digest, number, released, &self.directory.budgets)
    }

    /// Settles what a request of the predecessor had reserved.
    pub fn settle(&self, settlement: Settlement) {
        let Settlement { subject, start, reserved, actual } = settlement;
        self.directory.budgets.meter(subject).settle(start, reserved, actual);
    }

    /// Appends an entry to the revocation log: the successor has revoked something, which ends what is open here.
    pub fn append_revocation(&self, entry: RevocationEntry) {
        self.directory.revocations.append(entry);
    }

    /// Holds the slots of a request that the predecessor still serves, of its organization and its key, also beyond
    /// their limits; none when there is no such organization.
    ///
    /// A request of a key that has `concurrent` now holds a slot of it, also if it began before.
    pub fn hold_slots(&self, org: OrgId, key: Option<KeyId>) -> Option<Permit> {
        match key.and_then(|key| self.directory.key(key)) {
            Some(record) => Some(record.hold_slots()),
            None => self.directory.tree().hold_slot(org),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::embedded::Settings;
    use crate::{Change, ChangeError, Org, RouteAccess};
    use domain::budget::Cost;
    use domain::key::OrgTag;
    use domain::quota::Quota;
    use domain::refusal::Refusal;

    fn open() -> (tempfile::TempDir, Embedded) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let state =
            Embedded::open(&Settings { path, quota: Quota::DEFAULT, concurrent: 1, plans: crate::LimitPlans::NONE })
                .unwrap();
        (directory, state)
    }

    fn is_unknown(decision: Result<Decision, Unavailable>) -> bool {
        matches!(decision, Ok(Decision::Denied { refusal: Refusal::Unknown, .. }))
    }

    #[tokio::test]
    async fn frozen_state_decides_when_it_goes_on_and_asks_the_successor_when_it_does_not() {
        let (_directory, state) = open();
        let digest = KeyDigest::of(b"any");
        let request = DecideRequest {
            digest: &digest,
            id: None,
            access: RouteAccess::Everyone,
            cost: Cost::ONE,
            client: None,
            now: Micros(1),
        };
        state.freeze();
        assert!(state.is_frozen());
        let mut waiting = std::pin::pin!(state.decide_after_handover(request));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut waiting).await.is_err(), "it waits");
        state.pause_writing().await.unwrap();
        state.unfreeze();
        assert!(is_unknown(waiting.await));

        state.freeze();
        state.pause_writing().await.unwrap();
        let (successor, mut requests) = tokio::sync::mpsc::unbounded_channel();
        state.hand_over(successor);
        let answer = async {
            let Some(SuccessorRequest::Decide(asked, reply)) = requests.recv().await else { panic!("a decision") };
            assert_eq!(asked.as_request().digest, &digest);
            reply.send(Decision::Denied { refusal: Refusal::Unknown, principal: None, rate_limit: None }).unwrap();
        };
        let (decision, ()) = tokio::join!(state.decide_after_handover(request), answer);
        assert!(is_unknown(decision));
        drop(requests);
        assert!(matches!(state.decide_after_handover(request).await, Err(Unavailable::Unreachable)));
    }

    fn org(name: &str) -> Change {
        let id = OrgId::generate();
        let tag = OrgTag::generate().unwrap();
        let org = Org::new(id, tag, name, Micros(1));
        Change::CreateOrg(org)
    }

    #[tokio::test]
    async fn changes_go_on_after_a_pause_that_was_given_up_and_say_when_they_cannot() {
        let (_directory, state) = open();
        state.write_back().await;
        state.freeze();
        {
            let mut pausing = std::pin::pin!(state.pause_writing());
            let _ = futures_util::poll!(&mut pausing);
        }
        state.unfreeze();
        state.change(org("after")).await.unwrap();

        state.freeze();
        state.pause_writing().await.unwrap();
        let mut waiting = std::pin::pin!(state.change(org("waiting")));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        state.hand_over(tokio::sync::mpsc::unbounded_channel().0);
        assert!(matches!(waiting.await, Err(ChangeError::HandedOver)));
        assert!(matches!(state.change(org("later")).await, Err(ChangeError::HandedOver)));
    }

    #[tokio::test]
    async fn file_can_be_opened_with_the_lock_that_was_handed_over_and_not_without() {
        let (directory, state) = open();
        let settings = Settings {
            path: directory.path().join("state.db"),
            quota: Quota::DEFAULT,
            concurrent: 1,
            plans: crate::LimitPlans::NONE,
        };
        state.freeze();
        state.pause_writing().await.unwrap();
        let lock = state.share_lock().unwrap();
        assert!(matches!(Embedded::open(&settings), Err(OpenError::Locked(_))));
        let successor = Embedded::open_with_lock(&settings, lock).unwrap();
        state.hand_over(tokio::sync::mpsc::unbounded_channel().0);
        drop(state);
        assert!(matches!(Embedded::open(&settings), Err(OpenError::Locked(_))), "the successor has the lock");
        drop(successor);
        Embedded::open(&settings).unwrap();
    }
}
