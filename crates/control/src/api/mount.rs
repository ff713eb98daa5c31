//! Mounts of the API.

/// The challenge to a browser. There is no registered scheme for cookies; for an unknown one, browsers show no dialog.
pub(crate) const COOKIE_CHALLENGE: &str = "Cookie realm=\"keygate\"";

/// Place where the API is mounted, by its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mount {
    /// The admin socket: the operator.
    Socket = 1,
    /// A listener for management: programs.
    Network = 2,
    /// The origin of the dashboard: people who are signed in.
    Browser = 4,
}

impl Mount {
    /// The challenge that 401 requires (RFC 9110, section 11.6.1).
    pub(super) fn challenge(self) -> Option<&'static str> {
        match self {
            Self::Socket => None,
            Self::Network => Some("Bearer realm=\"keygate management\""),
            Self::Browser => Some(COOKIE_CHALLENGE),
        }
    }
}
