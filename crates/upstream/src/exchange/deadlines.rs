//! Deadlines of an exchange.

use std::time::Duration;

use tokio::time::Instant;

use crate::settings::Timeouts;

/// Deadlines of one attempt of an exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// Time at which the request was given to a connection.
    pub(crate) sent: Instant,
    /// End of the request's body, from which the latency of the response counts: a slow upload is not the endpoint's.
    /// None when the response began before that, or the request was not sent whole.
    pub(crate) request_end: Option<Instant>,
    /// Time from the request being sent to the head of the response, in this attempt.
    pub(crate) response: Duration,
    /// Deadlines of the response's body, the same in all attempts.
    pub(crate) body: BodyDeadlines,
}

/// Deadlines of the body of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyDeadlines {
    /// Time of the last byte of the response; none for a long-lived exchange.
    end: Option<Instant>,
    /// Time between two pieces of the response's body.
    idle: Duration,
}

impl Deadlines {
    /// Deadlines of an exchange that begins when its request is `sent`. A long-lived one only has a time in which
    /// something must come.
    pub(crate) fn new(timeouts: &Timeouts, long_lived: Option<Duration>, sent: Instant) -> Self {
        match long_lived {
            Some(idle) => Self { sent, request_end: None, response: idle, body: BodyDeadlines { end: None, idle } },
            None => {
                let body = BodyDeadlines { end: Some(sent + timeouts.exchange), idle: timeouts.response_idle };
                Self { sent, request_end: None, response: timeouts.response, body }
            }
        }
    }

    /// The same for a request that is given to a connection only now.
    pub(crate) fn sent_now(self) -> Self {
        Self { sent: Instant::now(), request_end: None, ..self }
    }

    /// Part of the time for the head that the attempt has taken: it begins when the request has gone whole.
    pub(crate) fn spent(&self) -> Duration {
        self.request_end.map_or(Duration::ZERO, |end| end.elapsed())
    }
}

impl BodyDeadlines {
    /// Deadline of the next piece, which is waited for from now on.
    pub(crate) fn next_piece(&self, now: Instant) -> Instant {
        self.earlier(now + self.idle)
    }

    /// The earlier deadline: this one, or that of the exchange as a whole.
    pub(crate) fn earlier(&self, due: Instant) -> Instant {
        self.end.map_or(due, |end| end.min(due))
    }

    /// Returns whether the deadline of the exchange as a whole has passed.
    pub(crate) fn has_ended(&self, now: Instant) -> bool {
        self.end.is_some_and(|end| now >= end)
    }
}
