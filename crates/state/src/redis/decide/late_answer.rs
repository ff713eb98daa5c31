//! Reconciles a decision whose Redis reply arrived after the request had been admitted locally.
//!
//! If Redis admitted the request too, that is the one use that counts. If it did not, the local use has to be reported.
//! The request and the task that awaits the late reply finish in either order; the one that comes last knows both
//! results and decides.

use std::sync::atomic::{AtomicU8, Ordering};

/// No reply is awaited: the decide call never got as far as being sent, or its reply came in time.
const NO_CALL: u8 = 0;
/// A task awaits the late reply.
const PENDING: u8 = 1;
/// The script ran and took a token.
const RAN: u8 = 2;
/// The script took no token, as far as can be known.
const DID_NOT_RUN: u8 = 3;
/// The request was admitted locally.
const ADMITTED_LOCALLY: u8 = 4;

/// State that the request and the awaiting task share. Each changes it once; the second of the two finds what the first
/// has left. Dropped with the later of them.
#[derive(Debug, Default)]
pub struct LateAnswer(AtomicU8);

impl LateAnswer {
    /// Notes that a task awaits the reply from now on.
    pub fn mark_pending(&self) {
        self.0.store(PENDING, Ordering::Release);
    }

    /// Notes that the reply arrived, or never will. Returns whether the task has to report the local use.
    pub fn complete(&self, ran: bool) -> bool {
        let before = self.0.swap(if ran { RAN } else { DID_NOT_RUN }, Ordering::AcqRel);
        before == ADMITTED_LOCALLY && !ran
    }

    /// Notes that the request was admitted locally. Returns whether the request has to report the local use.
    pub fn admit_locally(&self) -> bool {
        // While the reply is pending the task decides, when it knows whether Redis counted the use.
        matches!(self.0.swap(ADMITTED_LOCALLY, Ordering::AcqRel), NO_CALL | DID_NOT_RUN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the request, and whether the task, reports the use.
    fn reports(ran: bool, request_first: bool) -> (bool, bool) {
        let late_answer = LateAnswer::default();
        late_answer.mark_pending();
        if request_first {
            let request = late_answer.admit_locally();
            (request, late_answer.complete(ran))
        } else {
            let task = late_answer.complete(ran);
            (late_answer.admit_locally(), task)
        }
    }

    #[test]
    fn local_use_is_reported_once_if_redis_did_not_count_it_and_never_if_it_did() {
        assert_eq!(reports(true, true), (false, false));
        assert_eq!(reports(true, false), (false, false));
        assert_eq!(reports(false, true), (false, true));
        assert_eq!(reports(false, false), (true, false));
        assert!(LateAnswer::default().admit_locally(), "there was no call");
    }
}
