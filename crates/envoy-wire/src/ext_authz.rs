//! One question and one answer for a request: `envoy/service/auth/v3/external_auth.proto` and
//! `attribute_context.proto`.
//!
//! Envoy removes fields *after* it has set others, so that a name in both lists would be gone: the constructors keep
//! the lists disjoint. Of a field to set it reads `value`, and ignores `raw_value`.

use std::collections::BTreeMap;
use std::fmt;

use http::StatusCode;

use crate::grpc::Code;
use crate::{Address, HeaderMap, HeaderValue, HeaderValueOption, HttpStatus, Struct, Timestamp};

/// Path of the one method.
pub const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

/// Question: may this request go on?
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CheckRequest {
    /// The request and its peers.
    #[prost(message, optional, tag = "1")]
    pub attributes: Option<AttributeContext>,
}

/// A request and its peers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AttributeContext {
    /// The client, or the proxy before Envoy.
    #[prost(message, optional, tag = "1")]
    pub source: Option<Peer>,
    /// Envoy's own side of the connection.
    #[prost(message, optional, tag = "2")]
    pub destination: Option<Peer>,
    /// The request.
    #[prost(message, optional, tag = "4")]
    pub request: Option<Request>,
    /// Texts that the operator has given to the route.
    #[prost(btree_map = "string, string", tag = "10")]
    pub context_extensions: BTreeMap<String, String>,
}

/// One end of the described connection.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Peer {
    /// Its address.
    #[prost(message, optional, tag = "1")]
    pub address: Option<Address>,
}

/// The described request, with its time.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Request {
    /// Moment at which Envoy had its first byte.
    #[prost(message, optional, tag = "1")]
    pub time: Option<Timestamp>,
    /// The request of HTTP.
    #[prost(message, optional, tag = "2")]
    pub http: Option<HttpRequest>,
}

/// The described request of HTTP. `Debug` shows names of its fields, and no values.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct HttpRequest {
    /// Number of the request in Envoy.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Method.
    #[prost(string, tag = "2")]
    pub method: String,
    /// Fields by name, pseudo-fields with them; fields of one name are joined by commas. Use [`fields`](Self::fields).
    #[prost(btree_map = "string, string", tag = "3")]
    pub headers: BTreeMap<String, String>,
    /// Fields in their order, in place of `headers`: when the filter has `encode_raw_headers`.
    #[prost(message, optional, tag = "13")]
    pub header_map: Option<HeaderMap>,
    /// Target with its query.
    #[prost(string, tag = "4")]
    pub path: String,
    /// Authority.
    #[prost(string, tag = "5")]
    pub host: String,
    /// Scheme.
    #[prost(string, tag = "6")]
    pub scheme: String,
    /// Always empty: `path` has the query.
    #[prost(string, tag = "7")]
    pub query: String,
    /// Always empty.
    #[prost(string, tag = "8")]
    pub fragment: String,
    /// Bytes of the body; -1 when unknown.
    #[prost(int64, tag = "9")]
    pub size: i64,
    /// `HTTP/1.1` or another version.
    #[prost(string, tag = "10")]
    pub protocol: String,
    /// Body as text, when the filter sends it.
    #[prost(string, tag = "11")]
    pub body: String,
}

impl CheckRequest {
    /// The described request; none when it is absent.
    pub fn http(&self) -> Option<&HttpRequest> {
        self.attributes.as_ref()?.request.as_ref()?.http.as_ref()
    }

    /// The address of the client, or of the proxy before Envoy; none when it is absent.
    pub fn source(&self) -> Option<&Address> {
        self.attributes.as_ref()?.source.as_ref()?.address.as_ref()
    }
}

impl HttpRequest {
    /// Names and values of the fields, of whichever form was sent; of both, should both be there: so that a name that
    /// may be there once is seen to be doubled.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let joined = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        joined.chain(self.header_map.iter().flat_map(HeaderMap::fields))
    }
}

impl fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.fields().map(|(name, _)| name).collect();
        f.debug_struct("HttpRequest").field("method", &self.method).field("fields", &names).finish_non_exhaustive()
    }
}

/// Answer to a question.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CheckResponse {
    /// The decision: 0 admits.
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
    /// Metadata for later filters and the access log of Envoy.
    #[prost(message, optional, tag = "4")]
    pub dynamic_metadata: Option<Struct>,
    /// Changes of the request, or the response of the refusal.
    #[prost(oneof = "HttpResponse", tags = "2, 3")]
    pub http_response: Option<HttpResponse>,
}

/// Status of a decision: `google/rpc/status.proto`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Status {
    /// Number of a [`Code`].
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// Text for people.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// Changes of the request, or the response of the refusal.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum HttpResponse {
    /// Response of a refusal.
    #[prost(message, tag = "2")]
    DeniedResponse(DeniedHttpResponse),
    /// Changes of an admitted request.
    #[prost(message, tag = "3")]
    OkResponse(OkHttpResponse),
}

/// Response of a refusal. Every field goes to the client.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeniedHttpResponse {
    /// Its status.
    #[prost(message, optional, tag = "1")]
    pub status: Option<HttpStatus>,
    /// Its fields.
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<HeaderValueOption>,
    /// Its body.
    #[prost(string, tag = "3")]
    pub body: String,
}

/// Changes of an admitted request.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OkHttpResponse {
    /// Fields to set.
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<HeaderValueOption>,
    /// Names to remove, after fields were set.
    #[prost(string, repeated, tag = "5")]
    pub headers_to_remove: Vec<String>,
    /// Fields to set in the response to the client.
    #[prost(message, repeated, tag = "6")]
    pub response_headers_to_add: Vec<HeaderValueOption>,
}

impl CheckResponse {
    /// Admits the request with other fields: those of `set` replace fields of their names, and those named in `remove`
    /// are removed. A name in both is set.
    pub fn admitted<N: Into<String>, V: Into<String>>(
        set: impl IntoIterator<Item = (N, V)>,
        mut remove: Vec<String>,
        metadata: Option<Struct>,
    ) -> Self {
        let headers = text_fields(set);
        remove.retain(|name| !headers.iter().any(|set| set.name().eq_ignore_ascii_case(name)));
        let changes = OkHttpResponse { headers, headers_to_remove: remove, response_headers_to_add: Vec::new() };
        Self {
            status: Some(Status::from(Code::Ok)),
            dynamic_metadata: metadata,
            http_response: Some(HttpResponse::OkResponse(changes)),
        }
    }

    /// Adds fields to the response that the client will get.
    #[must_use]
    pub fn with_response_fields<N: Into<String>, V: Into<String>>(
        mut self,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        if let Some(HttpResponse::OkResponse(changes)) = &mut self.http_response {
            changes.response_headers_to_add = text_fields(fields);
        }
        self
    }

    /// Refuses the request with a response. The code of the decision is [`Code::ResourceExhausted`] for 429, and
    /// [`Code::PermissionDenied`] for every other status: a refusal cannot admit.
    pub fn denied<N: Into<String>, V: Into<String>>(
        status: StatusCode,
        fields: impl IntoIterator<Item = (N, V)>,
        body: impl Into<String>,
    ) -> Self {
        let code = match status {
            StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
            _ => Code::PermissionDenied,
        };
        let response =
            DeniedHttpResponse { status: Some(status.into()), headers: text_fields(fields), body: body.into() };
        Self {
            status: Some(Status::from(code)),
            dynamic_metadata: None,
            http_response: Some(HttpResponse::DeniedResponse(response)),
        }
    }
}

impl From<Code> for Status {
    fn from(code: Code) -> Self {
        Self { code: code.number(), message: String::new() }
    }
}

fn text_fields<N: Into<String>, V: Into<String>>(fields: impl IntoIterator<Item = (N, V)>) -> Vec<HeaderValueOption> {
    let fields = fields.into_iter().map(|(name, value)| HeaderValue::text(name.into(), value.into()));
    HeaderValueOption::replacing(fields, None)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn admitted_lists_are_disjoint() {
        let remove = ["authorization", "X-Org-Id", "x-user-id", "x-key"].map(str::to_owned).to_vec();
        let answer = CheckResponse::admitted([("x-user-id", "7"), ("x-org-id", "acme")], remove, None);
        assert_eq!(answer.status, Some(Status { code: 0, message: String::new() }));
        let Some(HttpResponse::OkResponse(changes)) = answer.http_response else { panic!("no changes") };
        assert_eq!(changes.headers_to_remove, ["authorization", "x-key"]);
        let fields: Vec<_> = changes.headers.iter().map(|option| option.header.clone().unwrap()).collect();
        let expected = [("x-user-id", "7"), ("x-org-id", "acme")];
        assert_eq!(fields, expected.map(|(name, value)| HeaderValue::text(name.to_owned(), value.to_owned())));
    }

    #[test]
    fn denied_never_admits() {
        for status in (100..1000).map(|status| StatusCode::from_u16(status).unwrap()) {
            let answer = CheckResponse::denied(status, [("retry-after", "1")], "{}");
            let expected = if status == 429 { 8 } else { 7 };
            assert_eq!(answer.status.unwrap().code, expected, "{status}");
            let Some(HttpResponse::DeniedResponse(response)) = answer.http_response else { panic!("no response") };
            assert_eq!(response.status, Some(HttpStatus { code: i32::from(status.as_u16()) }));
        }
    }

    #[test]
    fn response_fields_are_added_to_admissions_only() {
        let admitted = CheckResponse::admitted([("x-user-id", "7")], vec![], None);
        let Some(HttpResponse::OkResponse(changes)) =
            admitted.with_response_fields([("ratelimit", "r=1")]).http_response
        else {
            panic!("no changes")
        };
        assert_eq!(changes.response_headers_to_add[0].name(), "ratelimit");
        let denied = CheckResponse::denied(StatusCode::FORBIDDEN, [("vary", "*")], "");
        assert_eq!(denied.clone().with_response_fields([("ratelimit", "r=1")]), denied);
    }

    #[test]
    fn fields_of_both_forms_are_seen() {
        let mut http = HttpRequest { headers: BTreeMap::from([("a".into(), "1".into())]), ..HttpRequest::default() };
        assert_eq!(http.fields().collect::<Vec<_>>(), [("a", &b"1"[..])]);
        http.header_map = Some(HeaderMap { headers: vec![HeaderValue::raw("a".into(), Bytes::from_static(b"\xFF"))] });
        assert_eq!(http.fields().collect::<Vec<_>>(), [("a", &b"1"[..]), ("a", b"\xFF")]);
    }

    #[test]
    fn debug_hides_the_described_request() {
        let headers = BTreeMap::from([("authorization".to_owned(), "Bearer secret".to_owned())]);
        let path = "/?key=secret".to_owned();
        let http = HttpRequest { path, headers, body: "secret".to_owned(), ..HttpRequest::default() };
        let request = Request { time: None, http: Some(http) };
        let attributes = Some(AttributeContext { request: Some(request), ..AttributeContext::default() });
        let shown = format!("{:?}", CheckRequest { attributes });
        assert!(shown.contains("authorization") && !shown.contains("secret"), "{shown}");
    }
}
