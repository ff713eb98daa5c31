//! Decision about a request between two attempts: pure, and performed by the driver ([`super::Exchange`]).
//!
//! | state | event | next state | action |
//! |---|---|---|---|
//! | each | a response for the client, or a failure behind which nothing is sent | the same | end |
//! | each | no pooled connection, or one that was closed before anything was written to it | the same | connect |
//! | any | no room: the connection that was there was taken meanwhile | unshared | connect |
//! | unshared, new | no room | the same | connect |
//! | each | no connection could be made | the same | connect elsewhere: nothing was sent |
//! | each | failed, and no retry is granted | the same | end |
//! | each | failed in a way that may have broken all pooled connections, and a retry is granted | new | send again |
//! | any, new | failed otherwise, and a retry is granted | any | send again |
//! | unshared | failed otherwise, and a retry is granted | unshared | send again |
//!
//! A request whose pooled connection breaks before the first byte of the response is in state `any`; the event is
//! *failed*. If the request may be executed twice and the budget has a retry, it is sent again to another endpoint,
//! over a connection of its own. Otherwise the exchange ends with that failure: the upstream may have executed the
//! request.

use crate::error::SendError;

/// Connection that a request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A pooled one, a new one, or (HTTP/2) one that is being opened for another request.
    Any,
    /// A pooled one, or a new one that is opened for it.
    Unshared,
    /// A new one.
    New,
}

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// There is a response for the client, or an error behind which nothing is sent.
    Ended,
    /// There is no pooled connection, or it was closed before anything was written to it.
    NoPooled,
    /// There was no room for a connection after all.
    NoRoom,
    /// No connection could be made.
    NotConnected,
    /// The request was sent, and the attempt has failed.
    Failed {
        /// True if the request may be sent again, and the budget has granted it.
        is_granted: bool,
        /// True if what broke the connection may have broken all pooled ones.
        needs_new: bool,
    },
}

/// Action of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Ends the exchange with the most informative result of its attempts.
    End,
    /// Connects to the endpoint of the request, or to another one that has room.
    Connect,
    /// Addresses the request to another endpoint, and connects there.
    ConnectElsewhere,
    /// Makes the request again, addresses it, and connects.
    SendAgain,
}

/// Decides what happens to a request after an attempt.
pub(super) fn decide_next(state: State, event: Event) -> (State, Action) {
    match event {
        Event::Ended | Event::Failed { is_granted: false, .. } => (state, Action::End),
        Event::NoPooled => (state, Action::Connect),
        Event::NoRoom if state == State::Any => (State::Unshared, Action::Connect),
        Event::NoRoom => (state, Action::Connect),
        Event::NotConnected => (state, Action::ConnectElsewhere),
        Event::Failed { needs_new: true, .. } => (State::New, Action::SendAgain),
        Event::Failed { .. } if state == State::New => (State::Any, Action::SendAgain),
        Event::Failed { .. } => (state, Action::SendAgain),
    }
}

/// Chooses the result of two attempts that the client sees, and returns the response that it does not see.
///
/// | earlier | later | the client sees |
/// |---|---|---|
/// | a response | the upstream has not begun with the request | the response |
/// | the upstream may have begun | the upstream has not begun | the earlier error: "not executed" would be untrue |
/// | a response | a response, or any other error | the later one |
/// | none, or any other error | anything | the later one |
pub(super) fn most_informative<R>(
    earlier: Option<Result<R, SendError>>,
    later: Result<R, SendError>,
) -> (Result<R, SendError>, Option<R>) {
    match (earlier, later) {
        (Some(Ok(response)), Err(error)) if error.is_unprocessed() => (Ok(response), None),
        (Some(Err(earlier)), Err(later)) if later.is_unprocessed() && !earlier.is_unprocessed() => (Err(earlier), None),
        (Some(Ok(response)), later) => (later, Some(response)),
        (_, later) => (later, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{TimeoutKind, WaitRefusal};

    /// All rows of the table: each state with each event.
    #[test]
    fn next_attempt_follows_from_the_state_and_the_event() {
        use Action::{Connect, ConnectElsewhere, End, SendAgain};
        use State::{Any, New, Unshared};
        let failed = |is_granted, needs_new| Event::Failed { is_granted, needs_new };
        let rows = [
            (Event::Ended, [(Any, End), (Unshared, End), (New, End)]),
            (Event::NoPooled, [(Any, Connect), (Unshared, Connect), (New, Connect)]),
            (Event::NoRoom, [(Unshared, Connect), (Unshared, Connect), (New, Connect)]),
            (Event::NotConnected, [(Any, ConnectElsewhere), (Unshared, ConnectElsewhere), (New, ConnectElsewhere)]),
            (failed(false, false), [(Any, End), (Unshared, End), (New, End)]),
            (failed(false, true), [(Any, End), (Unshared, End), (New, End)]),
            (failed(true, false), [(Any, SendAgain), (Unshared, SendAgain), (Any, SendAgain)]),
            (failed(true, true), [(New, SendAgain), (New, SendAgain), (New, SendAgain)]),
        ];
        for (event, expected) in rows {
            assert_eq!([Any, Unshared, New].map(|state| decide_next(state, event)), expected, "{event:?}");
        }
    }

    /// A loop of attempts ends: without a grant of the budget, or another endpoint, at most one more attempt is made
    /// for each pooled connection.
    #[test]
    fn request_is_sent_again_only_when_a_retry_is_granted() {
        for event in [Event::Ended, Event::NoPooled, Event::NoRoom, Event::NotConnected] {
            for state in [State::Any, State::Unshared, State::New] {
                assert_ne!(decide_next(state, event).1, Action::SendAgain, "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn client_sees_the_most_informative_result() {
        let shown = |earlier, later| match most_informative::<&str>(earlier, later) {
            (Ok(response), dropped) => (response.to_owned(), dropped),
            (Err(error), dropped) => (error.to_string(), dropped),
        };
        let unprocessed = || Err(SendError::Unavailable);
        let failed = || Err(SendError::TimedOut(TimeoutKind::Head));
        let of = |error: SendError| error.to_string();
        assert_eq!(shown(Some(Ok("503")), unprocessed()), ("503".to_owned(), None));
        assert_eq!(shown(Some(failed()), unprocessed()), (of(SendError::TimedOut(TimeoutKind::Head)), None));
        assert_eq!(shown(Some(Ok("503")), Ok("200")), ("200".to_owned(), Some("503")));
        assert_eq!(shown(Some(Ok("503")), failed()), (of(SendError::TimedOut(TimeoutKind::Head)), Some("503")));
        assert_eq!(shown(Some(failed()), Ok("200")), ("200".to_owned(), None));
        let full = || SendError::NoConnection(WaitRefusal::QueueFull);
        assert_eq!(shown(Some(unprocessed()), Err(full())), (of(full()), None));
        assert_eq!(shown(None, unprocessed()), (of(SendError::Unavailable), None));
    }
}
