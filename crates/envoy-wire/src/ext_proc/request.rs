//! Parts of an exchange, as Envoy sends them.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use super::{BodyResponse, HeadersResponse, ProcessingResponse, Response, TrailersResponse};
use crate::{HeaderMap, Struct};

/// One part of an exchange. `Debug` shows names of attributes, and no values.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct ProcessingRequest {
    /// The part.
    #[prost(oneof = "Request", tags = "2, 3, 4, 5, 6, 7")]
    pub request: Option<Request>,
    /// Attributes that the filter is configured to send, below `envoy.filters.http.ext_proc`.
    #[prost(btree_map = "string, message", tag = "9")]
    pub attributes: BTreeMap<String, Struct>,
    /// Envoy ignores every answer: the filter cannot refuse.
    #[prost(bool, tag = "10")]
    pub observability_mode: bool,
}

/// Part of an exchange.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Request {
    /// Head of the request, with pseudo-fields.
    #[prost(message, tag = "2")]
    RequestHeaders(HttpHeaders),
    /// Head of the response, with `:status`.
    #[prost(message, tag = "3")]
    ResponseHeaders(HttpHeaders),
    /// Body of the request, or a piece.
    #[prost(message, tag = "4")]
    RequestBody(HttpBody),
    /// Body of the response, or a piece.
    #[prost(message, tag = "5")]
    ResponseBody(HttpBody),
    /// Trailers of the request.
    #[prost(message, tag = "6")]
    RequestTrailers(HttpTrailers),
    /// Trailers of the response.
    #[prost(message, tag = "7")]
    ResponseTrailers(HttpTrailers),
}

/// A head.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HttpHeaders {
    /// Its fields.
    #[prost(message, optional, tag = "1")]
    pub headers: Option<HeaderMap>,
    /// No body and no trailers follow.
    #[prost(bool, tag = "3")]
    pub end_of_stream: bool,
}

/// A body, or a piece of one. `Debug` shows its length.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct HttpBody {
    /// Its bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub body: Bytes,
    /// Nothing follows.
    #[prost(bool, tag = "2")]
    pub end_of_stream: bool,
}

/// Trailers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HttpTrailers {
    /// Their fields.
    #[prost(message, optional, tag = "1")]
    pub trailers: Option<HeaderMap>,
}

impl ProcessingRequest {
    /// The answer that lets this part pass as it is; none when the part is of an unknown kind, or no answer is read.
    pub fn unchanged(&self) -> Option<ProcessingResponse> {
        let response = match self.request.as_ref()? {
            _ if self.observability_mode => return None,
            Request::RequestHeaders(_) => Response::RequestHeaders(HeadersResponse::default()),
            Request::ResponseHeaders(_) => Response::ResponseHeaders(HeadersResponse::default()),
            Request::RequestBody(_) => Response::RequestBody(BodyResponse::default()),
            Request::ResponseBody(_) => Response::ResponseBody(BodyResponse::default()),
            Request::RequestTrailers(_) => Response::RequestTrailers(TrailersResponse::default()),
            Request::ResponseTrailers(_) => Response::ResponseTrailers(TrailersResponse::default()),
        };
        Some(response.into())
    }
}

impl HttpHeaders {
    /// Names and values of the fields, pseudo-fields with them.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers.iter().flat_map(HeaderMap::fields)
    }
}

impl HttpTrailers {
    /// Names and values of the fields.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.trailers.iter().flat_map(HeaderMap::fields)
    }
}

impl From<Request> for ProcessingRequest {
    fn from(request: Request) -> Self {
        Self { request: Some(request), ..Self::default() }
    }
}

impl fmt::Debug for ProcessingRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessingRequest")
            .field("request", &self.request)
            .field("attributes", &self.attributes.keys())
            .field("observability_mode", &self.observability_mode)
            .finish()
    }
}

impl fmt::Debug for HttpBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpBody")
            .field("body", &format_args!("{} bytes", self.body.len()))
            .field("end_of_stream", &self.end_of_stream)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::HeaderValue;

    #[test]
    fn unchanged_answers_are_of_the_same_part() {
        let (headers, body, trailers) = (HttpHeaders::default(), HttpBody::default(), HttpTrailers::default());
        for (part, tag) in [
            (Request::RequestHeaders(headers.clone()), 1),
            (Request::ResponseHeaders(headers), 2),
            (Request::RequestBody(body.clone()), 3),
            (Request::ResponseBody(body), 4),
            (Request::RequestTrailers(trailers.clone()), 5),
            (Request::ResponseTrailers(trailers), 6),
        ] {
            let answer = ProcessingRequest::from(part).unchanged().unwrap();
            assert_eq!(answer.encode_to_vec(), [tag << 3 | 2, 0], "an empty message with the number of the part");
        }
    }

    #[test]
    fn unknown_and_observed_parts_have_no_answer() {
        assert_eq!(ProcessingRequest::default().unchanged(), None);
        let mut request = ProcessingRequest::from(Request::RequestHeaders(HttpHeaders::default()));
        request.observability_mode = true;
        assert_eq!(request.unchanged(), None);
    }

    #[test]
    fn debug_hides_values() {
        let field = HeaderValue::raw("authorization".to_owned(), Bytes::from_static(b"secret"));
        let headers = HttpHeaders { headers: Some(HeaderMap { headers: vec![field] }), end_of_stream: true };
        let attributes = Struct::from_iter([("request.headers", "secret")]);
        let mut request = ProcessingRequest::from(Request::RequestHeaders(headers));
        request.attributes.insert("envoy.filters.http.ext_proc".to_owned(), attributes);
        let body = HttpBody { body: Bytes::from_static(b"secret"), end_of_stream: false };
        let shown = format!("{request:?} {body:?}");
        assert!(shown.contains("authorization") && shown.contains("envoy.filters.http.ext_proc"), "{shown}");
        assert!(!shown.contains("secret") && !shown.contains("115"), "{shown}");
    }
}
