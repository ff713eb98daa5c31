//! Options of a conversion.

use domain::clock::Micros;

/// Programs whose files are converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Dialect {
    /// Kong: a declarative file, as of `deck gateway dump`
    Kong,
    /// Apache APISIX: apisix.yaml of the standalone mode, or lists of the Admin API
    Apisix,
    /// Unkey: keys as JSON
    Unkey,
    /// Kubernetes: Secrets of Kong Ingress Controller, Envoy Gateway and agentgateway, as of `kubectl get -o yaml`
    Kubernetes,
    /// agentgateway: keys of its configuration file
    Agentgateway,
    /// OpenAPI: operations become `routes` of a configuration
    Openapi,
}

/// Options of a conversion.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Program whose file it is.
    pub dialect: Dialect,
    /// Keys that have a number of requests left become keys that have none.
    pub keep_counted: bool,
    /// Keys that look encrypted are keys as they are.
    pub plain_keys: bool,
    /// Addresses are made of `custom_id`.
    pub email_from_custom_id: bool,
    /// Permissions are made of groups.
    pub permissions_from_groups: bool,
    /// The time at which keys have expired or not.
    pub now: Micros,
}
