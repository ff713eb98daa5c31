//! List of the upstream's endpoints on the admin socket.
//!
//! The list has the shape of every list. It is in the order of the names, and a cursor is the last name of the page before: an
//! endpoint that is there all the while appears once, whatever comes and goes.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use http::uri::Authority;

use super::response::{self, AdminResponse};
use crate::page::{InvalidCursor, InvalidPageLimit, Page, PageLimit, PageQuery};
use crate::upstream::EndpointReport;

/// Source of the reports of all endpoints.
#[derive(Clone)]
pub struct UpstreamReports(Arc<dyn Fn() -> Vec<EndpointReport> + Send + Sync>);

impl UpstreamReports {
    /// Reports that this function makes.
    pub fn new(report: impl Fn() -> Vec<EndpointReport> + Send + Sync + 'static) -> Self {
        Self(Arc::new(report))
    }

    /// Responds with a page of the list. `query` is that of the request.
    pub(super) fn respond(&self, query: Option<&str>) -> AdminResponse {
        let invalid = |detail: String| response::problem(StatusCode::BAD_REQUEST, "invalid_request", detail);
        match parse(query.unwrap_or_default()) {
            Err(detail) => invalid(detail),
            Ok(query) => match page((self.0)(), &query) {
                Ok(page) => response::json(StatusCode::OK, &page),
                Err(error) => invalid(error.to_string()),
            },
        }
    }
}

impl fmt::Debug for UpstreamReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UpstreamReports")
    }
}

fn parse(query: &str) -> Result<PageQuery, String> {
    let mut page = PageQuery::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "cursor" => page.cursor = Some(value.into_owned()),
            "limit" => page.limit = PageLimit::parse(&value).map_err(|error: InvalidPageLimit| error.to_string())?,
            other => return Err(format!("`{other}` is no parameter of this list; give `cursor` or `limit`")),
        }
    }
    Ok(page)
}

fn page(mut all: Vec<EndpointReport>, query: &PageQuery) -> Result<Page<EndpointReport>, InvalidCursor> {
    if let Some(cursor) = &query.cursor {
        cursor.parse::<Authority>().map_err(|_| InvalidCursor)?;
        all.retain(|report| report.endpoint > *cursor);
    }
    all.sort_unstable_by(|a, b| a.endpoint.cmp(&b.endpoint));
    Ok(Page::cut(all, query.limit.get(), |last| last.endpoint.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::EndpointStatus;

    fn reports(count: usize) -> Vec<EndpointReport> {
        let report = |number| EndpointReport {
            endpoint: format!("a:{number}"),
            state: EndpointStatus::Up,
            reason: None,
            until: None,
            ejections: 0,
            last_check: None,
            in_flight: 0,
            latency: None,
            connections: 0,
        };
        (0..count).map(report).collect()
    }

    #[test]
    fn pages_have_each_endpoint_once() {
        let (mut query, mut seen) = (parse("limit=20").unwrap(), Vec::new());
        loop {
            let page = page(reports(50), &query).unwrap();
            seen.extend(page.items);
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => break,
            }
        }
        seen.sort_unstable_by_key(|report| report.endpoint[2..].parse::<usize>().unwrap());
        assert_eq!(seen, reports(50));
    }

    #[test]
    fn wrong_parameters_are_refused() {
        assert!(parse("limit=0").is_err() && parse("limit=x").is_err() && parse("offset=1").is_err());
        assert!(page(reports(2), &parse("cursor=b%201").unwrap()).is_err());
    }
}
