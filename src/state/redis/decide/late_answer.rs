//! What becomes of a question whose answer was late, when the request was admitted without it.
//!
//! If Redis admitted it too, that is the one use that counts; if not, Redis is to be told of the provisional one. Who
//! comes to know it last, the request or the task that waits for the answer, sees to it.

use std::sync::atomic::{AtomicU8, Ordering};

/// Nobody waits for an answer: there is no question on its way.
const OPEN: u8 = 0;
/// A task waits for it.
const FOLLOWED: u8 = 1;
/// It ran, and took a token.
const RAN: u8 = 2;
/// It took none, as far as can be known.
const DID_NOT: u8 = 3;
/// The request was admitted without it.
const ADMITTED: u8 = 4;

/// Shared by the request and the task.
#[derive(Debug, Default)]
pub(in crate::state::redis) struct LateAnswer(AtomicU8);

impl LateAnswer {
    /// A task waits for the answer now.
    pub(in crate::state::redis) fn mark_pending(&self) {
        self.0.store(FOLLOWED, Ordering::Release);
    }

    /// The answer came, or never will; whether a provisional use is to be told of.
    pub(in crate::state::redis) fn complete(&self, ran: bool) -> bool {
        self.0.swap(if ran { RAN } else { DID_NOT }, Ordering::AcqRel) == ADMITTED && !ran
    }

    /// The request was admitted without Redis; whether its use is to be told of, as far as can be known now.
    pub(in crate::state::redis) fn admit_locally(&self) -> bool {
        matches!(self.0.swap(ADMITTED, Ordering::AcqRel), OPEN | DID_NOT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a use is told of, by the request and by the task.
    fn told(ran: bool, request_first: bool) -> (bool, bool) {
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
    fn a_use_is_told_of_once_when_redis_did_not_take_it_and_never_when_it_did() {
        assert_eq!(told(true, true), (false, false));
        assert_eq!(told(true, false), (false, false));
        assert_eq!(told(false, true), (false, true));
        assert_eq!(told(false, false), (true, false));
        assert!(LateAnswer::default().admit_locally(), "there was no question");
    }
}
