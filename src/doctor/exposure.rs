//! Judgement of an upstream's exposure: it believes the identity headers of every client that reaches it, so that
//! only the gateway may.

use std::error::Error;

use http::StatusCode;

use super::client::in_full;
use super::finding::Findings;
use platform::tls::{self, Explanation};

/// Place of an endpoint, as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A Unix socket.
    Socket,
    /// A loopback address.
    ThisMachine,
    /// Any other address.
    Network,
}

/// Answer of an endpoint to a request without credentials, identity headers and client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A response.
    Status(StatusCode),
    /// It refused the TLS connection: it requires a client certificate.
    CertificateRequired,
    /// Its certificate is not one that the gateway trusts.
    Untrusted(Explanation),
    /// The connection was opened, and no response came.
    NoResponse(String),
    /// No connection.
    Unreachable(String),
}

impl Answer {
    /// The answer that an error of the exchange shows.
    pub(super) fn of_error(error: &(dyn Error + 'static)) -> Self {
        match tls::find_error(error) {
            Some(rustls::Error::AlertReceived(_)) => Self::CertificateRequired,
            Some(error @ (rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)) => {
                Self::Untrusted(tls::explain(error))
            }
            _ => Self::NoResponse(in_full(error)),
        }
    }
}

/// Judges the answer. `is_gateway` is true on a machine on which the gateway runs.
pub(super) fn judge(subject: &str, place: Place, answer: &Answer, is_gateway: bool, findings: &mut Findings) {
    match (answer, place) {
        (Answer::Unreachable(error), _) => {
            let advice = "start it, or correct the endpoint; `keygate upstreams` shows it as the gateway sees it";
            findings.warning(subject, format!("cannot be reached: {error}"), advice);
        }
        (Answer::NoResponse(error), _) => {
            let advice = "see the log of the upstream; check `protocol` and the scheme of the endpoint";
            findings.warning(subject, format!("does not answer: {error}"), advice);
        }
        (Answer::Untrusted(Explanation { found, cure }), _) => {
            let advice = cure.unwrap_or("correct tls.ca, or its certificate");
            findings.error(subject, format!("its certificate is not trusted: {found}"), advice);
        }
        (Answer::CertificateRequired, _) => findings.ok(subject, "requires a client certificate"),
        (Answer::Status(_), Place::Socket) => findings.ok(subject, "a socket of this machine, protected by its mode"),
        (Answer::Status(status), Place::ThisMachine) => {
            let advice = "any process on this machine can forge identity headers; run nothing untrusted here";
            findings.note(subject, format!("answers {status} to every process of this machine"), advice);
        }
        (Answer::Status(status), Place::Network) => judge_open(subject, *status, is_gateway, findings),
    }
}

fn judge_open(subject: &str, status: StatusCode, is_gateway: bool, findings: &mut Findings) {
    let refuses = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let found = if refuses {
        format!("answers {status} without identity headers, and would believe forged ones")
    } else {
        format!("answers {status} to a request that did not come through the gateway")
    };
    let advice = "let only the gateway reach it: a NetworkPolicy (deploy/helm/keygate has one), a firewall, or client \
        certificates (upstream.tls)";
    if is_gateway {
        let elsewhere = "then run `keygate doctor --only upstreams` on another machine, where it must not answer";
        findings.warning(subject, found, format!("{advice}; {elsewhere}"));
    } else {
        findings.error(subject, format!("{found}, and no gateway runs on this machine"), advice);
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::client::ExchangeError;
    use super::super::finding::Severity;
    use super::*;

    #[test]
    fn answers_are_judged_by_the_place() {
        let status = |code| Answer::Status(StatusCode::from_u16(code).unwrap());
        let cases = [
            (Place::Network, status(200), true, Severity::Warning),
            (Place::Network, status(401), true, Severity::Warning),
            (Place::Network, status(200), false, Severity::Error),
            (Place::Network, Answer::CertificateRequired, false, Severity::Ok),
            (Place::Network, Answer::Untrusted("x".to_owned().into()), true, Severity::Error),
            (Place::Network, Answer::NoResponse("x".into()), true, Severity::Warning),
            (Place::Network, Answer::Unreachable("x".into()), true, Severity::Warning),
            (Place::ThisMachine, status(200), true, Severity::Note),
            (Place::Socket, status(404), true, Severity::Ok),
        ];
        for (place, answer, is_gateway, expected) in cases {
            let mut findings = Findings::new("upstreams");
            judge("u", place, &answer, is_gateway, &mut findings);
            assert_eq!(findings.into_list()[0].severity, expected, "{place:?} {answer:?} {is_gateway}");
        }
    }

    #[test]
    fn alert_of_tls_is_found_within_an_error() {
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired);
        // As a connection gives it that fails when it is read from.
        let error = ExchangeError::Body(Box::new(io::Error::other(alert)));
        assert_eq!(Answer::of_error(&error), Answer::CertificateRequired);
        let error = io::Error::from(io::ErrorKind::ConnectionReset);
        assert!(matches!(Answer::of_error(&error), Answer::NoResponse(_)));
    }
}
