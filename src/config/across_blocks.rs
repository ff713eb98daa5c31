//! Contradictions between blocks of the configuration.

use super::{Listener, ListenerRole, Upstream};
use crate::admission::RouteSettings;
use ::upstream::Protocol;
use domain::quota::Quota;
use platform::settings::{Reported, Section};

/// Reports contradictions between blocks, as far as these could be read.
pub(super) fn check_across_blocks(
    file: &Section<'_>,
    upstreams: Result<&[Upstream], &Reported>,
    routes: &[RouteSettings],
    has_dashboard: bool,
    listen: Option<&[Listener]>,
    quotas: &[(String, Quota)],
) {
    check_upgrades(file, upstreams.unwrap_or_default(), routes);
    check_dashboard_only(file, has_dashboard, listen);
    check_costs(file, quotas, routes);
}

/// Reports `upgrade` over HTTP/2, where no connection can switch protocols (RFC 9113, section 8.6).
fn check_upgrades(file: &Section<'_>, upstreams: &[Upstream], routes: &[RouteSettings]) {
    let upgraded = routes.iter().filter(|route| !route.upgrade.is_empty());
    let mut upgraded = upgraded.filter_map(|route| upstreams.get(route.upstream));
    if let Some(upstream) = upgraded.find(|upstream| upstream.settings.protocol == Protocol::Http2) {
        let block = if file.contains("upstreams") {
            format!("upstreams.{}", upstream.settings.name)
        } else {
            "upstream".to_owned()
        };
        let what = format!("`upgrade` needs HTTP/1 to the upstream; remove it, or `{block}.protocol: http2`");
        file.report("routes", what);
    }
}

/// Reports routes that cost more than a bucket ever has: no request to them would be admitted.
fn check_costs(file: &Section<'_>, quotas: &[(String, Quota)], routes: &[RouteSettings]) {
    for (block, Quota { burst, .. }) in quotas {
        for RouteSettings { name, cost, .. } in routes.iter().filter(|route| route.cost.tokens() > *burst) {
            let cost = cost.tokens();
            file.report(
                "routes",
                format_args!(
                    "`{name}` costs {cost}, more than the burst of `{block}` ({burst}); lower `cost`, or raise \
                     `{block}.burst`"
                ),
            );
        }
    }
}

/// Reports listeners for a dashboard that is not configured, and a gateway without any listener for the API.
///
/// A `session` block with errors counts as a dashboard: its own errors were reported.
fn check_dashboard_only(file: &Section<'_>, has_dashboard: bool, listen: Option<&[Listener]>) {
    let Some(listen) = listen else { return };
    if !has_dashboard && listen.iter().any(|listener| listener.role == ListenerRole::Dashboard) {
        file.report("listen", "serves the dashboard, which needs a block `session`; add it, or remove `serves`");
    }
    if !listen.iter().any(|listener| listener.role.forwards() || listener.role == ListenerRole::Decisions) {
        file.report("listen", "serves nothing but the dashboard or management; add one for the API or for decisions");
    }
}
