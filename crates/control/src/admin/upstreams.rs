//! List of the upstreams' endpoints on the admin socket.
//!
//! The list has the shape of every list. It is in the order of the names of upstreams and endpoints, and a cursor is
//! the last pair of the page before: an endpoint that is there all the while appears once, whatever comes and goes.

use http::StatusCode;

use super::response::{self, AdminResponse};
use domain::page::{InvalidCursor, InvalidPageLimit, Page, PageLimit, PageQuery};
use upstream::EndpointReport;

/// Responds with a page of the list of these endpoints. `query` is that of the request.
pub(super) fn respond(endpoints: Vec<EndpointReport>, query: Option<&str>) -> AdminResponse {
    let paged =
        parse(query.unwrap_or_default()).and_then(|query| page(endpoints, &query).map_err(|error| error.to_string()));
    match paged {
        Ok(page) => response::json(StatusCode::OK, &page),
        Err(detail) => response::problem(StatusCode::BAD_REQUEST, "invalid_request", detail),
    }
}

/// Query of the list.
#[derive(Debug, Default)]
struct Query {
    page: PageQuery,
    /// Upstream whose endpoints are listed; none: all.
    upstream: Option<String>,
}

fn parse(query: &str) -> Result<Query, String> {
    let mut parsed = Query::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "cursor" => parsed.page.cursor = Some(value.into_owned()),
            "upstream" => parsed.upstream = Some(value.into_owned()),
            "limit" => {
                parsed.page.limit = PageLimit::parse(&value).map_err(|error: InvalidPageLimit| error.to_string())?
            }
            other => {
                return Err(format!("`{other}` is no parameter of this list; give `cursor`, `limit` or `upstream`"));
            }
        }
    }
    Ok(parsed)
}

fn page(mut all: Vec<EndpointReport>, query: &Query) -> Result<Page<EndpointReport>, InvalidCursor> {
    if let Some(upstream) = &query.upstream {
        all.retain(|report| report.upstream == *upstream);
    }
    if let Some(cursor) = &query.page.cursor {
        // The names of upstreams have no slash; the paths of sockets do.
        let last = cursor.split_once('/').ok_or(InvalidCursor)?;
        all.retain(|report| names(report) > last);
    }
    all.sort_unstable_by(|a, b| names(a).cmp(&names(b)));
    Ok(Page::cut(all, query.page.limit.get(), |last| format!("{}/{}", last.upstream, last.endpoint)))
}

fn names(report: &EndpointReport) -> (&str, &str) {
    (&report.upstream, &report.endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use upstream::EndpointStatus;

    fn reports(count: usize) -> Vec<EndpointReport> {
        let report = |number: usize| EndpointReport {
            upstream: ["one", "two"][number % 2].to_owned(),
            endpoint: format!("unix:/{}", number / 2),
            state: EndpointStatus::Up,
            reason: None,
            until: None,
            paused_until: None,
            ejections: 0,
            last_check: None,
            in_flight: 0,
            latency: None,
            connections: 0,
            waiting: 0,
        };
        (0..count).map(report).collect()
    }

    #[test]
    fn pages_have_each_endpoint_once() {
        let mut query = parse("limit=20").unwrap();
        let mut seen = Vec::new();
        loop {
            let page = page(reports(50), &query).unwrap();
            seen.extend(page.items);
            match page.next {
                Some(next) => query.page.cursor = Some(next),
                None => break,
            }
        }
        assert!(seen.is_sorted_by(|a, b| names(a) < names(b)), "each once, in order");
        assert_eq!(seen.len(), 50);
    }

    #[test]
    fn upstream_is_chosen_by_its_name() {
        let page = |query: &str| page(reports(50), &parse(query).unwrap()).unwrap();
        let two = page("upstream=two&limit=20");
        assert!(two.items.iter().all(|report| report.upstream == "two"));
        let rest = page(&format!("upstream=two&limit=20&cursor={}", two.next.unwrap()));
        assert_eq!((two.items.len(), rest.items.len(), rest.next), (20, 5, None));
        assert!(page("upstream=three").items.is_empty());
    }

    #[test]
    fn wrong_parameters_are_refused() {
        assert!(parse("limit=0").is_err() && parse("limit=x").is_err() && parse("offset=1").is_err());
        assert!(page(reports(2), &parse("cursor=b%201").unwrap()).is_err());
    }
}
