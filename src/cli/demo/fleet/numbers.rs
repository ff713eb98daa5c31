//! Numbers of a run with two gateways, and the verdicts on them: a pure function.
//!
//! Every number but one is exact. A crash permits an inequality for the requests that broke at the killed gateway
//! before they reached the upstream ([`Numbers::undecided`]): each may have taken a token without a record, since the
//! record comes after the decision, or was refused with a record and without an answer. Requests that reached the
//! upstream have their records first, whatever happened to the gateway then.

use std::time::Duration;

use serde::Serialize;

use super::{BURST, CLIENTS, GATEWAYS, PERIOD, REQUESTS};

/// Requests that are open at the killed gateway at most: each of its clients has one.
const OPEN_AT_KILL: u64 = (CLIENTS / GATEWAYS) as u64;
/// Time from the acknowledgement of a revocation in which open requests of the key end, by the contract.
const REVOKED_STREAM_BOUND: f64 = 1000.0;

/// Numbers of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Numbers {
    /// The load's requests, by what their clients saw.
    pub(super) clients: ClientNumbers,
    /// Answers before one gateway was killed.
    pub(super) answers_before_kill: u64,
    /// Tokens that the bucket got back during the load, rounded down.
    pub(super) refilled: u64,
    /// The load's requests that reached the upstream.
    pub(super) forwarded: u64,
    /// The load's uses, by their outcome in the journals of both gateways.
    pub(super) audit: AuditNumbers,
    /// Answers of 200 whose request has no record.
    pub(super) unrecorded_answers: u64,
    /// Requests at the upstream that have no record.
    pub(super) unrecorded_forwarded: u64,
    pub(super) revocation: Revocation,
    /// Uses of the revoked key, by their outcome in the journals of both gateways.
    pub(super) revoked_audit: RevokedAudit,
    /// Defects that the verification of both journals found.
    pub(super) journal_defects: u64,
}

/// Requests by what their clients saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ClientNumbers {
    /// Answered with 200.
    pub(super) ok: u64,
    /// Answered with 429.
    pub(super) refused: u64,
    /// Without a whole answer, because the connection broke.
    pub(super) broken: u64,
    /// Answered with another status.
    pub(super) other: u64,
}

/// Uses by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct AuditNumbers {
    pub(super) completed: u64,
    pub(super) aborted: u64,
    pub(super) rate_limited: u64,
    pub(super) other: u64,
}

/// Uses of the revoked key by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct RevokedAudit {
    pub(super) completed: u64,
    pub(super) terminated: u64,
    pub(super) revoked: u64,
    pub(super) other: u64,
}

/// Revocation at one gateway, and its effects at the other. Times are milliseconds since it was sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Revocation {
    pub(super) acknowledged_ms: f64,
    /// Status of the last request before it.
    pub(super) status_before: Option<u16>,
    /// Status of the first request that was sent after the acknowledgement.
    pub(super) status_after: Option<u16>,
    pub(super) answered_ms: f64,
    /// End of the open stream; none when it stayed open.
    pub(super) stream_end: Option<StreamEnd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct StreamEnd {
    /// Negative when it ended before the revocation was sent.
    pub(super) ended_ms: f64,
    /// Its connection was reset; else it looked like a regular end.
    pub(super) is_reset: bool,
}

/// A line of the result: a number, what was promised, and the verdict; none for a number without a promise of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    pub(super) what: &'static str,
    pub(super) counted: String,
    pub(super) promised: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) is_right: Option<bool>,
}

impl Line {
    /// A number without a promise of its own.
    fn of(what: &'static str, counted: String) -> Self {
        Self { what, counted, promised: String::new(), is_right: None }
    }

    fn promised(self, promised: impl Into<String>, is_right: bool) -> Self {
        Self { promised: promised.into(), is_right: Some(is_right), ..self }
    }

    /// A number that must be within bounds.
    fn between(what: &'static str, counted: u64, least: u64, most: u64) -> Self {
        let promised = match (least, most) {
            _ if least == most => grouped(most),
            (0, most) => format!("at most {}", grouped(most)),
            _ => format!("{} to {}", grouped(least), grouped(most)),
        };
        Self::of(what, grouped(counted)).promised(promised, (least..=most).contains(&counted))
    }

    fn exactly(what: &'static str, counted: u64, promised: u64) -> Self {
        Self::between(what, counted, promised, promised)
    }

    /// The verdict, as the table shows it.
    pub(super) fn verdict(&self) -> &'static str {
        match self.is_right {
            Some(true) => "ok",
            Some(false) => "WRONG",
            None => "",
        }
    }
}

impl Numbers {
    /// The lines of the result.
    pub(super) fn lines(&self) -> Vec<Line> {
        let mut lines = self.load_lines();
        lines.extend(self.audit_lines());
        lines.extend(self.revocation_lines());
        lines.push(Line::exactly("defects in the two journals", self.journal_defects, 0));
        lines
    }

    /// Requests that broke before they reached the upstream.
    fn undecided(&self) -> u64 {
        (self.clients.broken + self.clients.ok).saturating_sub(self.forwarded)
    }

    fn load_lines(&self) -> Vec<Line> {
        let ClientNumbers { ok, refused, broken, other } = self.clients;
        vec![
            Line::exactly("requests of the clients", ok + refused + broken + other, (CLIENTS * REQUESTS) as u64),
            Line::of("  answered before kill -9 of gateway 1", grouped(self.answers_before_kill)),
            Line::of("  200", grouped(ok)),
            Line::of("  429", grouped(refused)),
            Line::between("  connection broken by the kill", broken, 0, OPEN_AT_KILL),
            Line::exactly("  any other answer", other, 0),
        ]
    }

    fn audit_lines(&self) -> Vec<Line> {
        let AuditNumbers { completed, aborted, rate_limited, other } = self.audit;
        let undecided = self.undecided();
        let least_admitted = BURST.saturating_sub(undecided);
        let refused = self.clients.refused;
        vec![
            Line::of("audit: completed", grouped(completed)),
            Line::of("audit: aborted", grouped(aborted)),
            Line::between("audit: rate_limited", rate_limited, refused, refused + undecided),
            Line::exactly("audit: any other outcome", other, 0),
            Line::between(
                "admitted by both gateways: completed and aborted",
                completed + aborted,
                least_admitted,
                BURST + self.refilled,
            ),
            Line::exactly("200s without a record", self.unrecorded_answers, 0),
            Line::exactly("requests at the upstream without a record", self.unrecorded_forwarded, 0),
        ]
    }

    fn revocation_lines(&self) -> Vec<Line> {
        let Revocation { acknowledged_ms, status_before, status_after, answered_ms, stream_end } = self.revocation;
        let status = |status: Option<u16>| status.map_or_else(|| "none".to_owned(), |status| status.to_string());
        let stream = match stream_end {
            None => "still open".to_owned(),
            Some(StreamEnd { ended_ms, .. }) if ended_ms < 0.0 => "ended before".to_owned(),
            Some(StreamEnd { ended_ms, is_reset: true }) => format!("reset after {ended_ms:.1} ms"),
            Some(StreamEnd { ended_ms, is_reset: false }) => format!("regular end after {ended_ms:.1} ms"),
        };
        let is_cut = stream_end
            .is_some_and(|end| end.is_reset && (0.0..=acknowledged_ms + REVOKED_STREAM_BOUND).contains(&end.ended_ms));
        let RevokedAudit { completed, terminated, revoked, other } = self.revoked_audit;
        let outcomes = format!("{completed}, {terminated}, {revoked}, {other}");
        vec![
            Line::of("key revoked at gateway 1, acknowledged after", format!("{acknowledged_ms:.1} ms")),
            Line::of("  last answer before it at gateway 2", status(status_before))
                .promised("200", status_before == Some(200)),
            Line::of(
                "  first answer after it at gateway 2",
                format!("{} after {answered_ms:.1} ms", status(status_after)),
            )
            .promised("401", status_after == Some(401)),
            Line::of("  open stream at gateway 2", stream).promised("reset within 1 s", is_cut),
            Line::of("  its audit: completed, terminated, revoked, other", outcomes)
                .promised("1, 1, 1, 0", [completed, terminated, revoked, other] == [1, 1, 1, 0]),
        ]
    }
}

/// Tokens that a bucket gets back in a time, rounded down.
pub(super) fn refilled(elapsed: Duration) -> u64 {
    (elapsed.as_micros() * u128::from(BURST) / PERIOD.as_micros()) as u64
}

/// A number with its thousands separated: `2,400`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADMITTED: &str = "admitted by both gateways: completed and aborted";

    fn right() -> Numbers {
        Numbers {
            clients: ClientNumbers { ok: 988, refused: 1400, broken: 12, other: 0 },
            answers_before_kill: 499,
            refilled: 0,
            forwarded: 1000,
            audit: AuditNumbers { completed: 986, aborted: 14, rate_limited: 1400, other: 0 },
            unrecorded_answers: 0,
            unrecorded_forwarded: 0,
            revocation: Revocation {
                acknowledged_ms: 8.0,
                status_before: Some(200),
                status_after: Some(401),
                answered_ms: 9.0,
                stream_end: Some(StreamEnd { ended_ms: 8.5, is_reset: true }),
            },
            revoked_audit: RevokedAudit { completed: 1, terminated: 1, revoked: 1, other: 0 },
            journal_defects: 0,
        }
    }

    type Change = fn(&mut Numbers);

    /// The lines whose number is off after a change of right numbers.
    fn wrong(change: impl FnOnce(&mut Numbers)) -> Vec<&'static str> {
        let mut numbers = right();
        change(&mut numbers);
        let lines = numbers.lines();
        lines.iter().filter(|line| line.is_right == Some(false)).map(|line| line.what.trim()).collect()
    }

    #[test]
    fn right_numbers_have_no_wrong_line() {
        assert_eq!(wrong(|_| {}), [""; 0]);
    }

    #[test]
    fn each_wrong_number_makes_its_line_wrong() {
        let stream = |ended_ms, is_reset| Some(StreamEnd { ended_ms, is_reset });
        let cases: [(Change, &[&str]); 16] = [
            (|n| n.clients.refused -= 1, &["requests of the clients", "audit: rate_limited"]),
            (|n| n.clients.broken += 1, &["requests of the clients", "connection broken by the kill"]),
            (|n| n.clients.other += 1, &["requests of the clients", "any other answer"]),
            (|n| n.audit.completed += 1, &[ADMITTED]),
            (|n| n.audit.aborted -= 1, &[ADMITTED]),
            (|n| n.audit.rate_limited += 1, &["audit: rate_limited"]),
            (|n| n.audit.rate_limited -= 1, &["audit: rate_limited"]),
            (|n| n.audit.other += 1, &["audit: any other outcome"]),
            (|n| n.unrecorded_answers += 1, &["200s without a record"]),
            (|n| n.unrecorded_forwarded += 1, &["requests at the upstream without a record"]),
            (|n| n.revocation.status_before = Some(429), &["last answer before it at gateway 2"]),
            (|n| n.revocation.status_after = Some(200), &["first answer after it at gateway 2"]),
            (|n| n.revocation.status_after = None, &["first answer after it at gateway 2"]),
            (|n| n.revocation.stream_end = None, &["open stream at gateway 2"]),
            (|n| n.revoked_audit.terminated = 0, &["its audit: completed, terminated, revoked, other"]),
            (|n| n.journal_defects += 1, &["defects in the two journals"]),
        ];
        for (change, expected) in cases {
            assert_eq!(wrong(change), expected);
        }
        for end in [stream(-0.1, true), stream(8.5, false), stream(1008.1, true)] {
            assert_eq!(wrong(|n| n.revocation.stream_end = end), ["open stream at gateway 2"], "{end:?}");
        }
        assert_eq!(wrong(|n| n.revocation.stream_end = stream(1008.0, true)), [""; 0]);
    }

    /// Two requests broke between the decision and the record, or after the record of a refusal: they never reached
    /// the upstream.
    #[test]
    fn undecided_requests_widen_two_bounds_by_their_number() {
        let with_two = |admitted: u64, rate_limited: u64| {
            move |n: &mut Numbers| {
                n.forwarded = 998;
                n.audit = AuditNumbers { completed: 980, aborted: admitted - 980, rate_limited, other: 0 };
            }
        };
        assert_eq!(wrong(with_two(998, 1400)), [""; 0]);
        assert_eq!(wrong(with_two(1000, 1402)), [""; 0]);
        assert_eq!(wrong(with_two(997, 1400)), [ADMITTED]);
        assert_eq!(wrong(with_two(1001, 1400)), [ADMITTED]);
        assert_eq!(wrong(with_two(998, 1403)), ["audit: rate_limited"]);
        assert_eq!(wrong(with_two(998, 1399)), ["audit: rate_limited"]);
    }

    #[test]
    fn refill_of_a_slow_run_is_promised_and_no_more() {
        let slow = |admitted: u64| {
            move |n: &mut Numbers| {
                n.refilled = refilled(Duration::from_millis(7300));
                n.audit.completed = admitted - n.audit.aborted;
            }
        };
        for admitted in 1000..=1002 {
            assert_eq!(wrong(slow(admitted)), [""; 0]);
        }
        assert_eq!(wrong(slow(1003)), [ADMITTED]);
        assert_eq!([3599, 3600, 7199, 7200].map(|ms| refilled(Duration::from_millis(ms))), [0, 1, 1, 2]);
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0, 999, 2400, 1_000_000].map(grouped), ["0", "999", "2,400", "1,000,000"]);
    }
}
