//! Warnings about routes: those that no request reaches, those that another spelling passes by, and parameters in the
//! notation of another router.

use crate::admission::{RouteSettings, Segment, bypasses, hidden_routes, pattern_segments};

/// The warnings, each a sentence.
pub(super) fn of_routes(routes: &[RouteSettings]) -> impl Iterator<Item = String> {
    let hidden = hidden_routes(routes).map(|(route, first)| {
        format!(
            "the route `{}` is never used: `{}` before it matches all its requests; list it before that one, or \
             remove it",
            route.name, first.name
        )
    });
    let bypassed = bypasses(routes)
        .into_iter()
        .map(|bypass| format!("the route `{}` can be passed by: {}; {}", bypass.route.name, bypass, bypass.advice()));
    hidden.chain(bypassed).chain(routes.iter().filter_map(warn_of_colon)).chain(routes.iter().filter_map(warn_of_keys))
}

/// Warning of a public route whose upstream gets `Authorization`, whatever is in it.
fn warn_of_keys(route: &RouteSettings) -> Option<String> {
    (route.is_public && route.pass_authorization).then(|| {
        format!(
            "the route `{}` is public and passes `Authorization`: a key that a client sends there as a bearer token \
             reaches the upstream; have clients send keys in a field of `credentials.headers` alone",
            route.name
        )
    })
}

/// Warning of a segment such as `:id`, a parameter in other routers and a literal here.
fn warn_of_colon(route: &RouteSettings) -> Option<String> {
    let name = pattern_segments(&route.path).0.find_map(|segment| match segment {
        Segment::Literal(text) => text.strip_prefix(':').filter(|name| !name.is_empty()).map(str::to_owned),
        Segment::Parameter => None,
    })?;
    Some(format!(
        "the route `{}` matches the literal segment `:{name}` alone; for a parameter write `{{{name}}}`",
        route.name
    ))
}
