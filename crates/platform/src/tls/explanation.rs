//! Errors of TLS in an operator's words: what is wrong with a certificate, and the cure. No text has an identifier of
//! the library.

use std::error::Error as StdError;
use std::fmt::{self, Display};
use std::io;

use rustls::pki_types::{ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, Error};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use domain::clock::Micros;

/// A flaw, and the change to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Such as "the certificate expired at 2026-11-20T21:08:00Z".
    pub found: String,
    /// The change to make; none where only the log of the other side knows.
    pub cure: Option<&'static str>,
}

/// Cure of a certificate that is over.
pub(super) const RENEW: &str = "renew it, or correct the clock of this machine";
/// Cure of a certificate that is not valid yet.
pub(super) const WAIT: &str = "use the one before it, or correct the clock of this machine";
/// Cure of a certificate of version 1, as `openssl x509 -req` makes without extensions.
pub(super) const VERSION_3: &str =
    "make one of version 3, with its names as extensions (`openssl x509 -req … -extfile FILE`)";
/// Cure of an authority's certificate that a server presents as its own.
pub(super) const NO_AUTHORITY: &str =
    "make one with CA:FALSE (`openssl req -x509 … -addext basicConstraints=critical,CA:FALSE`)";

/// A handshake that failed, in words.
#[derive(Debug)]
struct HandshakeError {
    explanation: Explanation,
    error: Error,
}

/// Shakes hands with a server. An error of TLS says what is wrong in words.
///
/// # Errors
/// Those of the connection and of the handshake.
pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    connector: &TlsConnector,
    name: ServerName<'static>,
    stream: S,
) -> io::Result<TlsStream<S>> {
    connector.connect(name, stream).await.map_err(|error| match find_error(&error) {
        Some(found) => {
            let error = HandshakeError { explanation: explain(found), error: found.clone() };
            io::Error::new(io::ErrorKind::InvalidData, error)
        }
        None => error,
    })
}

/// The error of TLS among an error and its causes. The error of a socket holds it, and does not name it as its source.
pub fn find_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    let in_socket = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let in_socket = in_socket.and_then(|inner| find_error(inner));
    let handshake = error.downcast_ref::<HandshakeError>().map(|handshake| &handshake.error);
    in_socket.or(handshake).or_else(|| error.downcast_ref()).or_else(|| find_error(error.source()?))
}

/// Explains an error of TLS.
pub fn explain(error: &Error) -> Explanation {
    match error {
        Error::InvalidCertificate(error) => explain_certificate(error),
        Error::NoCertificatesPresented => {
            Explanation::new("the other side presents no certificate", "configure one there")
        }
        Error::AlertReceived(alert) => explain_alert(*alert),
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => {
            Explanation::new("the other side does not speak TLS", "check the port and the scheme")
        }
        Error::PeerIncompatible(_) => Explanation::new(
            "the two sides have no version, cipher suite or key exchange of TLS in common",
            "allow TLS 1.2 with ECDHE, or TLS 1.3, on the other side",
        ),
        Error::NoApplicationProtocol => {
            Explanation::new("the two sides have no protocol in common (ALPN)", "check `protocol`")
        }
        Error::PeerMisbehaved(_) => "the other side breaks the rules of TLS".to_owned().into(),
        Error::InconsistentKeys(_) => "the private key is not the certificate's".to_owned().into(),
        other => other.to_string().into(),
    }
}

fn explain_alert(alert: AlertDescription) -> Explanation {
    use AlertDescription as Alert;
    let found = format!("the other side ended the handshake: {}", spaced(&format!("{alert:?}")));
    match alert {
        Alert::CertificateRequired
        | Alert::NoCertificate
        | Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateUnknown
        | Alert::CertificateExpired
        | Alert::CertificateRevoked
        | Alert::UnknownCA
        | Alert::AccessDenied => Explanation {
            found,
            cure: Some("give it a client certificate that it accepts (`tls.certificate` and `tls.key`)"),
        },
        Alert::UnrecognisedName => Explanation { found, cure: Some("check the host, or `tls.server_name`") },
        _ => found.into(),
    }
}

fn explain_certificate(error: &CertificateError) -> Explanation {
    match error {
        CertificateError::Expired => Explanation::new("the certificate has expired", RENEW),
        CertificateError::ExpiredContext { not_after, .. } => {
            Explanation::new(format!("the certificate expired at {}", time(*not_after)), RENEW)
        }
        CertificateError::NotValidYet => Explanation::new("the certificate is not valid yet", WAIT),
        CertificateError::NotValidYetContext { not_before, .. } => {
            Explanation::new(format!("the certificate is not valid before {}", time(*not_before)), WAIT)
        }
        CertificateError::UnknownIssuer => Explanation::new(
            "no authority that is trusted here has issued the certificate",
            "name its authority as `tls.ca`, and have the other side send the certificates in between",
        ),
        CertificateError::BadSignature => Explanation::new(
            "the certificate is not signed by the key of its authority",
            "use the authority of this name that issued it: one that was made anew has another key",
        ),
        CertificateError::NotValidForName => Explanation::new("the certificate is for other names", OTHER_NAME),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| bare_name(name)).collect();
            let names = if names.is_empty() { "no name as an extension".to_owned() } else { names.join(", ") };
            Explanation::new(format!("the certificate is not for {}, but for {names}", expected.to_str()), OTHER_NAME)
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => Explanation::new(
            "the certificate is for another purpose",
            "make one whose extendedKeyUsage has serverAuth, for a client clientAuth",
        ),
        CertificateError::BadEncoding => {
            Explanation::new("the certificate cannot be read", "make another one (X.509, version 3)")
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => Explanation::new(
            "the certificate, or one above it, is signed in a way that is not accepted, such as SHA-1",
            "make one with RSA of 2048 bits and more, ECDSA or Ed25519, and SHA-256",
        ),
        CertificateError::Other(other) => explain_other(&other.to_string()),
        other => format!("the certificate cannot be used: {}", spaced(&format!("{other:?}"))).into(),
    }
}

const OTHER_NAME: &str = "issue one for this name, or name another one (`tls.server_name`)";

/// Explains a flaw that the library has a name for, and no kind of error.
fn explain_other(name: &str) -> Explanation {
    match name {
        "CaUsedAsEndEntity" => {
            Explanation::new("the certificate is an authority's (CA:TRUE), and no server's own", NO_AUTHORITY)
        }
        "EndEntityUsedAsCa" => Explanation::new(
            "the certificate is issued by one that is no authority's (CA:FALSE)",
            "issue it by an authority, or name the certificate itself as `tls.ca`",
        ),
        "UnsupportedCertVersion" => Explanation::new("the certificate is of version 1", VERSION_3),
        "PathLenConstraintViolated" | "NameConstraintViolation" => Explanation::new(
            "an authority above the certificate may not issue it (its constraints)",
            "issue it by another authority",
        ),
        other => format!("the certificate cannot be used: {}", spaced(other)).into(),
    }
}

/// A name as the library shows it, `DnsName("a.test")`, without its kind.
fn bare_name(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"')
}

/// The words of an identifier: `CertificateRequired` as "certificate required". Values in it are left out.
fn spaced(identifier: &str) -> String {
    let name = identifier.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    let mut words = String::with_capacity(name.len() + 8);
    let mut after_lower_case = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && after_lower_case {
            words.push(' ');
        }
        after_lower_case = c.is_ascii_lowercase();
        words.push(c.to_ascii_lowercase());
    }
    words
}

fn time(at: UnixTime) -> String {
    seconds(at.as_secs())
}

/// A Unix time in seconds as RFC 3339.
pub(super) fn seconds(at: u64) -> String {
    let text = Micros(at.saturating_mul(1_000_000)).to_string();
    text.split_once('.').map_or_else(|| text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

impl Explanation {
    pub(super) fn new(found: impl Into<String>, cure: &'static str) -> Self {
        Self { found: found.into(), cure: Some(cure) }
    }
}

impl From<String> for Explanation {
    fn from(found: String) -> Self {
        Self { found, cure: None }
    }
}

impl Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.found)?;
        self.cure.map_or(Ok(()), |cure| write!(f, "; {cure}"))
    }
}

impl Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.explanation.fmt(f)
    }
}

impl StdError for HandshakeError {}

#[cfg(test)]
mod tests {
    use rustls::{OtherError, PeerIncompatible};

    use super::*;

    #[test]
    fn no_explanation_has_an_identifier_of_the_library() {
        let of = |error: CertificateError| Error::InvalidCertificate(error);
        let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_700_000_000));
        let other = || OtherError(std::sync::Arc::new(io::Error::other("UnsupportedCriticalExtension")));
        for (error, expected) in [
            (
                of(CertificateError::ExpiredContext { time: at, not_after: at }),
                "expired at 2023-11-14T22:13:20Z; renew",
            ),
            (of(CertificateError::UnknownIssuer), "no authority that is trusted here"),
            (of(CertificateError::Other(other())), "cannot be used: unsupported critical extension"),
            (of(CertificateError::UnhandledCriticalExtension), "cannot be used: unhandled critical extension"),
            (Error::AlertReceived(AlertDescription::CertificateRequired), "certificate required; give it"),
            (Error::AlertReceived(AlertDescription::UnknownCA), "handshake: unknown ca; give it"),
            (Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon), "no version, cipher suite"),
        ] {
            let text = explain(&error).to_string();
            assert!(text.contains(expected), "{text}");
        }
        assert_eq!(bare_name("DnsName(\"a.test\")"), "a.test");
        assert_eq!(bare_name("IpAddress(127.0.0.1)"), "127.0.0.1");
    }

    #[test]
    fn error_of_tls_is_found_within_an_error() {
        let alert = Error::AlertReceived(AlertDescription::CertificateRequired);
        let handshake = HandshakeError { explanation: explain(&alert), error: alert.clone() };
        for error in [io::Error::other(alert.clone()), io::Error::other(handshake)] {
            assert_eq!(find_error(&io::Error::other(error)), Some(&alert));
        }
        assert_eq!(find_error(&io::Error::from(io::ErrorKind::ConnectionReset)), None);
    }
}
