//! The block `timeouts`, whose values belong to several modules.

use std::ops::RangeInclusive;
use std::time::Duration;

use edge::transport;
use platform::settings::Section;

/// Range of a time-out. Longer than a day is the same as no time-out for a connection.
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);

/// The block `timeouts`.
pub(super) struct Timeouts {
    handshake: Duration,
    first_byte: Duration,
    write_idle: Duration,
    head: Duration,
    keep_alive: Duration,
    body_idle: Duration,
    /// Defaults of each upstream.
    pub(super) upstream: upstream::Timeouts,
    pub(super) tunnel_idle: Duration,
    pub(super) lame_duck: Duration,
    pub(super) drain: Duration,
}

impl Timeouts {
    /// The transport's settings: these time-outs, and the sizes of the block `http`.
    pub(super) fn with_sizes(&self, http: transport::Settings) -> transport::Settings {
        transport::Settings {
            handshake_timeout: self.handshake,
            first_byte_timeout: self.first_byte,
            write_idle_timeout: self.write_idle,
            head_timeout: self.head,
            keep_alive_timeout: self.keep_alive,
            body_idle_timeout: self.body_idle,
            ..http
        }
    }
}

/// Reads the block `timeouts`.
pub(super) fn timeouts(section: &mut Section<'_>) -> Timeouts {
    let transport = transport::Settings::default();
    let lame_duck =
        section.value_or("lame_duck", Duration::from_secs(5), |value| value.duration(Duration::ZERO..=*TIMEOUT.end()));
    let upstream = of_upstream(section, upstream::Timeouts::default());
    let mut timeout = |name, default| section.value_or(name, default, |value| value.duration(TIMEOUT));
    Timeouts {
        upstream,
        handshake: timeout("handshake", transport.handshake_timeout),
        first_byte: timeout("first_byte", transport.first_byte_timeout),
        write_idle: timeout("write_idle", transport.write_idle_timeout),
        head: timeout("head", transport.head_timeout),
        keep_alive: timeout("keep_alive", transport.keep_alive_timeout),
        body_idle: timeout("body_idle", transport.body_idle_timeout),
        tunnel_idle: timeout("tunnel_idle", Duration::from_secs(3600)),
        lame_duck,
        drain: timeout("drain", Duration::from_secs(25)),
    }
}

/// Reads the time-outs of exchanges with an upstream.
pub(super) fn of_upstream(section: &mut Section<'_>, default: upstream::Timeouts) -> upstream::Timeouts {
    let mut timeout = |name, default| section.value_or(name, default, |value| value.duration(TIMEOUT));
    upstream::Timeouts {
        connect: timeout("connect", default.connect),
        response: timeout("response", default.response),
        response_idle: timeout("response_idle", default.response_idle),
        exchange: timeout("exchange", default.exchange),
    }
}
