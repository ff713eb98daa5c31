//! HTTP interface of the service: routes requests to operations, and writes the responses.
//!
//! ```text
//! GET    /api/queries?cursor&limit    a page                     200 {"items":[…],"nextCursor":"…"}
//! POST   /api/queries                 a new query                201, Location
//! GET    /api/queries/{id}            one query                  200
//! PUT    /api/queries/{id}            replaces name and text     200
//! DELETE /api/queries/{id}            deletes it                 204
//! GET    /live, /ready                health checks              200 or 503
//! ```
//!
//! - Everything under `/api` needs the identity headers of the gateway (`caller`); without them it is refused.
//! - `HEAD` is answered like `GET`; the connection omits the body.
//! - Every refusal is a problem document (`request_error`).

use std::error::Error as StdError;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::Full;
use serde::Serialize;
use uuid::Uuid;

use crate::service::{Caller, Listing, QueryService};
use domain::clock::Micros;
use domain::page::Page;

mod body;
mod caller;
mod list;
mod request_error;

use request_error::RequestError;

pub use request_error::head_error_response;

/// Error of reading a request body.
pub type BodyError = Box<dyn StdError + Send + Sync>;

/// Body of a request.
pub trait RequestBody: Body<Error: Into<BodyError>> {}

impl<B: Body<Error: Into<BodyError>>> RequestBody for B {}

/// Answer to a request, or the refusal that becomes one.
type Answer = Result<Response<Full<Bytes>>, RequestError>;

/// The resource that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource {
    Queries,
    Query(Uuid),
    Live,
    Ready,
}

/// Answers one request.
pub async fn handle(service: &QueryService, request: Request<impl RequestBody>, now: Micros) -> Response<Full<Bytes>> {
    let request_id = caller::request_id(request.headers());
    route(service, request, now).await.unwrap_or_else(|error| error.response(&request_id))
}

async fn route(service: &QueryService, request: Request<impl RequestBody>, now: Micros) -> Answer {
    match find_resource(request.uri().path()).ok_or(RequestError::NotFound)? {
        Resource::Live => live(request.method()),
        Resource::Ready => ready(service, request.method()).await,
        Resource::Queries => queries(service, request, now).await,
        Resource::Query(id) => query(service, id, request, now).await,
    }
}

/// Finds the resource of a path. Each resource has one form of path only; no normalization.
fn find_resource(path: &str) -> Option<Resource> {
    match path {
        "/live" => Some(Resource::Live),
        "/ready" => Some(Resource::Ready),
        "/api/queries" => Some(Resource::Queries),
        _ => path.strip_prefix("/api/queries/").and_then(query_id).map(Resource::Query),
    }
}

/// An id in the one form in which it is shown, so that each query has one address.
fn query_id(text: &str) -> Option<Uuid> {
    let id = Uuid::try_parse(text).ok()?;
    (id.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text).then_some(id)
}

async fn queries(service: &QueryService, request: Request<impl RequestBody>, now: Micros) -> Answer {
    let caller = caller::read_caller(request.headers())?;
    match *request.method() {
        Method::GET | Method::HEAD => list(service, caller, request.uri().query(), now).await,
        Method::POST => create(service, caller, request, now).await,
        _ => Err(RequestError::Method { allow: "GET, HEAD, POST" }),
    }
}

async fn query(service: &QueryService, id: Uuid, request: Request<impl RequestBody>, now: Micros) -> Answer {
    let Caller { org, .. } = caller::read_caller(request.headers())?;
    match *request.method() {
        Method::GET | Method::HEAD => {
            let query = service.store().read(org, id).await?.ok_or(RequestError::NotFound)?;
            Ok(json(StatusCode::OK, &query))
        }
        Method::PUT => {
            let draft = body::read_draft(request, service.limits().body).await?;
            let query = service.store().replace(org, id, draft, now).await?.ok_or(RequestError::NotFound)?;
            Ok(json(StatusCode::OK, &query))
        }
        Method::DELETE if service.store().delete(org, id).await? => Ok(empty(StatusCode::NO_CONTENT)),
        Method::DELETE => Err(RequestError::NotFound),
        _ => Err(RequestError::Method { allow: "GET, HEAD, PUT, DELETE" }),
    }
}

async fn list(service: &QueryService, caller: Caller, parameters: Option<&str>, now: Micros) -> Answer {
    let list::Parameters { cursor, limit } = list::parse_parameters(parameters.unwrap_or_default())?;
    let Listing { items, next } = service.list(caller.org, cursor.as_deref(), limit.get(), now).await?;
    Ok(json(StatusCode::OK, &Page { items, next }))
}

async fn create(service: &QueryService, caller: Caller, request: Request<impl RequestBody>, now: Micros) -> Answer {
    let draft = body::read_draft(request, service.limits().body).await?;
    let query = service.store().create(caller.org, caller.user, draft, now).await?;
    let mut response = json(StatusCode::CREATED, &query);
    let location = HeaderValue::try_from(format!("/api/queries/{}", query.id)).expect("ids are visible ASCII");
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

fn live(method: &Method) -> Answer {
    match *method {
        Method::GET | Method::HEAD => Ok(empty(StatusCode::OK)),
        _ => Err(RequestError::Method { allow: "GET, HEAD" }),
    }
}

async fn ready(service: &QueryService, method: &Method) -> Answer {
    let response = live(method)?;
    service.store().check().await?;
    Ok(response)
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    let text = serde_json::to_vec(value).expect("texts, times and ids are always JSON");
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // The content belongs to one organization, so no shared cache may keep it.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_resources_in_one_form_only() {
        let id = "0190163d-8694-739b-aea5-966c26f8ad91";
        assert_eq!(find_resource("/api/queries"), Some(Resource::Queries));
        assert_eq!(find_resource(&format!("/api/queries/{id}")), Some(Resource::Query(id.parse().unwrap())));
        for path in ["/", "/api/queries/", "/api/queries/1", "//api/queries", "/api/queries/../queries", "/LIVE"] {
            assert_eq!(find_resource(path), None, "{path}");
        }
        assert_eq!(find_resource(&format!("/api/queries/{}", id.to_uppercase())), None);
        assert_eq!(find_resource(&format!("/api/queries/{id}/")), None);
        assert_eq!(find_resource(&format!("/api/queries/{}", id.replace('-', ""))), None);
    }
}
