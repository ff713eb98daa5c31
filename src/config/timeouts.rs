//! The block `timeouts`, whose values belong to several modules.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::upstream::Upstream;
use crate::settings::Section;
use crate::{transport, upstream};

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
    connect: Duration,
    response: Duration,
    response_idle: Duration,
    exchange: Duration,
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

    /// The upstream's settings: these time-outs, and the block `upstream`.
    pub(super) fn with_upstream(
        &self,
        Upstream { discovery, protocol, tls, balance, outlier, health, lifetimes, .. }: Upstream,
    ) -> upstream::Settings {
        upstream::Settings {
            endpoints: discovery.known_endpoints(),
            protocol,
            tls,
            balance,
            outlier,
            health,
            lifetimes,
            timeouts: upstream::Timeouts {
                connect: self.connect,
                response: self.response,
                response_idle: self.response_idle,
                exchange: self.exchange,
            },
        }
    }
}

/// Reads the block `timeouts`.
pub(super) fn timeouts(section: &mut Section<'_>) -> Timeouts {
    let transport = transport::Settings::default();
    let lame_duck =
        section.value_or("lame_duck", Duration::from_secs(5), |value| value.duration(Duration::ZERO..=*TIMEOUT.end()));
    let mut timeout = |name, default| section.value_or(name, default, |value| value.duration(TIMEOUT));
    Timeouts {
        handshake: timeout("handshake", transport.handshake_timeout),
        first_byte: timeout("first_byte", transport.first_byte_timeout),
        write_idle: timeout("write_idle", transport.write_idle_timeout),
        head: timeout("head", transport.head_timeout),
        keep_alive: timeout("keep_alive", transport.keep_alive_timeout),
        body_idle: timeout("body_idle", transport.body_idle_timeout),
        connect: timeout("connect", Duration::from_secs(2)),
        response: timeout("response", Duration::from_secs(60)),
        response_idle: timeout("response_idle", Duration::from_secs(60)),
        exchange: timeout("exchange", Duration::from_secs(15 * 60)),
        tunnel_idle: timeout("tunnel_idle", Duration::from_secs(3600)),
        lame_duck,
        drain: timeout("drain", Duration::from_secs(25)),
    }
}
