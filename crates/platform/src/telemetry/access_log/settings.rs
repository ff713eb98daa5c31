//! Settings of the access log.

use std::path::PathBuf;

/// Settings of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Destination of the lines.
    pub sink: SinkSettings,
    /// Requests that have a line.
    pub requests: LoggedRequests,
    /// Name of this gateway.
    pub gateway: String,
}

/// Destination of the lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkSettings {
    /// A file, which is created when it is missing, and opened again on SIGHUP.
    File(PathBuf),
    /// The standard output of the process.
    Stdout,
    /// A syslog server (RFC 5424).
    Syslog(SyslogSettings),
}

/// A syslog server, and how messages to it are marked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyslogSettings {
    /// Address of the server.
    pub server: SyslogServer,
    /// Number of the facility (RFC 5424, section 6.2.1), 0 to 23.
    pub facility: u8,
}

/// Address of a syslog server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogServer {
    /// Host and port; one datagram for each message (RFC 5426).
    Udp(String),
    /// Host and port; messages with their length in front (RFC 6587, octet counting).
    Tcp(String),
    /// Socket of this machine, such as `/dev/log`: datagrams, or messages with their length in front on a stream.
    Unix(PathBuf),
}

/// Requests that have a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedRequests {
    /// All requests.
    All,
    /// Requests without a record in the audit journal.
    Unaudited,
}

/// Facilities by their names, in the order of their numbers (RFC 5424, section 6.2.1).
pub const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp",
    "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];
