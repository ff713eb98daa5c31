//! Settings of a listener for decisions.

use std::time::Duration;

use ipnet::IpNet;

/// Settings of a listener for decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionSettings {
    /// Protocol of the proxies that ask.
    pub protocol: DecisionProtocol,
    /// Networks of the proxies that may ask. Others get no byte.
    pub peers: Vec<IpNet>,
    /// Time for which an admitted request has its slots.
    pub slots: DecisionSlots,
}

/// Protocol in which a proxy describes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionProtocol {
    /// `auth_request` of nginx: method and target are in the path of the subrequest, below `/v1/nginx/`.
    Nginx,
    /// ForwardAuth of Traefik, `forward_auth` of Caddy: they are in `X-Forwarded-Method` and `X-Forwarded-Uri`.
    ForwardAuth,
    /// `ext_authz` and `ext_proc` of Envoy over gRPC.
    Envoy,
}

/// Time for which a request that another proxy forwards has its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionSlots {
    /// Given back with the answer.
    None,
    /// Given back at the end of the stream, which is that of the exchange: `ext_proc`.
    Stream,
    /// Given back after this time, whatever happens.
    Lease(Duration),
}
