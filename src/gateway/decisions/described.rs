//! Requests that other proxies describe, as heads.
//!
//! - The facts of a request are written as the bytes of an HTTP/1 head, which the strict scanner of connections reads:
//!   there is no second reader, whatever protocol tells the facts.
//! - Over HTTP these are the request line and the host: the other fields came in a head that was read as every other
//!   one. By gRPC, whose strings no reader of HTTP has seen, all fields are among them.
//! - A fact that is missing or doubled is a refusal, and so is a client whose address cannot be read.

use std::collections::BTreeMap;
use std::mem;
use std::net::SocketAddr;

use envoy_wire::ext_authz::CheckRequest;
use envoy_wire::ext_proc::HttpHeaders;
use envoy_wire::{Kind, Struct};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Version};

use super::settings::DecisionProtocol;
use crate::gateway::Gateway;
use crate::gateway::rejection::HeadRefusal;
use domain::head_fields::{CredentialFields, FieldSet};
use domain::http_syntax::{is_field_value, is_token};
use domain::identity::{Peer, X_FORWARDED_FOR, X_FORWARDED_HOST};
use domain::refusal::Refusal;
use edge::forward::Client;
use edge::transport::Settings;
use edge::transport::head::{self, HeadLimits};

const X_FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
/// Attribute of a stream with the address of the client.
const SOURCE: &str = "source.address";
/// Beginning of the path of an nginx subrequest; method and target follow, one behind the other.
const NGINX: &str = "/v1/nginx/";
/// Fields of the body, which stays with the other proxy.
const BODY_FIELDS: [HeaderName; 3] = [CONTENT_LENGTH, TRANSFER_ENCODING, EXPECT];
/// Bytes of a head beside method, target and host.
const ROOM: usize = 32;

/// Request that Envoy describes by gRPC.
pub(super) struct Described {
    pub(super) head: Parts,
    /// Fields of the head that are acted on.
    pub(super) fields: FieldSet,
    pub(super) client: Client,
}

/// The head of the request that is described over HTTP. The question loses its fields to it.
///
/// # Errors
/// The refusal of a question that lacks a fact or has one twice, or describes a head that cannot be read.
pub(super) fn read(protocol: DecisionProtocol, asking: &mut Parts, settings: &Settings) -> Result<Parts, HeadRefusal> {
    let facts = match protocol {
        DecisionProtocol::Nginx => nginx(asking),
        DecisionProtocol::ForwardAuth => forward_auth(asking),
        DecisionProtocol::Envoy => unreachable!("it describes requests in messages"),
    };
    let facts =
        facts.filter(|_| only(&asking.headers, &X_FORWARDED_FOR).is_some()).ok_or(Refusal::MalformedDecision)?;
    let (mut head, _) = HeadBytes::of(&facts)?.read(settings)?;
    head.version = asking.version;
    let mut headers = mem::take(&mut asking.headers);
    if let Some(host) = head.headers.remove(HOST) {
        headers.insert(HOST, host);
    }
    for name in [X_FORWARDED_METHOD, X_FORWARDED_URI].iter().chain(&BODY_FIELDS) {
        headers.remove(name);
    }
    head.headers = headers;
    Ok(head)
}

/// Facts of a described request beside its fields.
struct Facts<'a> {
    method: &'a [u8],
    target: &'a [u8],
    host: &'a [u8],
}

fn may_have_key(name: &str, credentials: &CredentialFields) -> bool {
    name.eq_ignore_ascii_case(AUTHORIZATION.as_str()) || credentials.contains(name.as_bytes())
}

/// The request of `ext_authz`.
///
/// # Errors
/// As [`read`].
pub(super) fn of_check(question: &CheckRequest, gateway: &Gateway) -> Result<Described, HeadRefusal> {
    let http = question.http().ok_or(Refusal::MalformedDecision)?;
    let source = question.source().and_then(|source| source.socket_addr());
    let facts = Facts { method: http.method.as_bytes(), target: http.path.as_bytes(), host: http.host.as_bytes() };
    let told = [(":method", facts.method), (":path", facts.target), (":authority", facts.host)];
    // The attributes have the facts; fields that say otherwise, or a target in parts, are another request.
    let differs = |field: (&str, &[u8])| told.iter().any(|fact| fact.0 == field.0 && fact.1 != field.1);
    if http.fields().any(differs) || !http.query.is_empty() || !http.fragment.is_empty() {
        return Err(Refusal::MalformedDecision.into());
    }
    described(&facts, http.fields().filter(|(name, _)| !name.starts_with(':')), source, gateway)
}

/// The request of `ext_proc`, from the pseudo-fields of its head and the attribute with the address of the client.
///
/// # Errors
/// As [`read`].
pub(super) fn of_stream(
    head: &HttpHeaders,
    attributes: &BTreeMap<String, Struct>,
    gateway: &Gateway,
) -> Result<Described, HeadRefusal> {
    let mut sources = attributes.values().filter_map(|attributes| attributes.fields.get(SOURCE));
    let source = sources.next().filter(|_| sources.next().is_none());
    let source = source.and_then(|source| match &source.kind {
        Some(Kind::StringValue(source)) => source.parse().ok(),
        _ => None,
    });
    let fact = |name: &str| {
        let mut values = head.fields().filter(|field| field.0 == name).map(|(_, value)| value);
        values.next().filter(|_| values.next().is_none()).ok_or(Refusal::MalformedDecision)
    };
    let facts = Facts { method: fact(":method")?, target: fact(":path")?, host: fact(":authority")? };
    described(&facts, head.fields().filter(|(name, _)| !name.starts_with(':')), source, gateway)
}

/// A request with these facts and fields, which came from this address.
fn described<'a>(
    facts: &Facts<'_>,
    fields: impl Iterator<Item = (&'a str, &'a [u8])>,
    source: Option<SocketAddr>,
    gateway: &Gateway,
) -> Result<Described, HeadRefusal> {
    let address = source.ok_or(Refusal::MalformedDecision)?;
    let credentials = &gateway.settings.credentials;
    let mut bytes = HeadBytes::of(facts)?;
    for (name, value) in fields {
        let is_host = name.eq_ignore_ascii_case(HOST.as_str()) && value.eq_ignore_ascii_case(facts.host);
        if is_host || BODY_FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field.as_str())) {
            continue;
        }
        if may_have_key(name, credentials) {
            // Envoy has joined fields of one name.
            value.split(|byte| *byte == b',').try_for_each(|part| bytes.push(name, part))?;
        } else {
            bytes.push(name, value)?;
        }
    }
    let (mut head, fields) = bytes.read(&gateway.settings)?;
    head.version = Version::HTTP_2;
    let peer = Peer { address, tls: None, certificate: None };
    let client = Client::find_described(&peer, &head.headers, &gateway.trusted_proxies);
    Ok(Described { head, fields, client: client.ok_or(Refusal::MalformedDecision)? })
}

/// Bytes of a head, to be read by the scanner. No part of a line can end it: it is checked before it is written.
struct HeadBytes(Vec<u8>);

impl HeadBytes {
    /// The request line and the host. The target is a path: a proxy names the host apart.
    fn of(facts: &Facts<'_>) -> Result<Self, HeadRefusal> {
        let Facts { method, target, host } = *facts;
        let is_path = target.starts_with(b"/") || target == b"*";
        if method.is_empty() || host.is_empty() || !is_path {
            return Err(Refusal::MalformedDecision.into());
        }
        if !is_token(method) || !is_field_value(target) {
            return Err(Refusal::MalformedRequest.into());
        }
        let mut bytes = Vec::with_capacity(method.len() + target.len() + host.len() + ROOM);
        for part in [method, b" ", target, b" HTTP/1.1\r\n"] {
            bytes.extend_from_slice(part);
        }
        let mut head = Self(bytes);
        head.push(HOST.as_str(), host)?;
        Ok(head)
    }

    fn push(&mut self, name: &str, value: &[u8]) -> Result<(), HeadRefusal> {
        if !is_token(name.as_bytes()) || !is_field_value(value) {
            return Err(Refusal::MalformedRequest.into());
        }
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            self.0.extend_from_slice(part);
        }
        Ok(())
    }

    fn read(mut self, settings: &Settings) -> Result<(Parts, FieldSet), HeadRefusal> {
        self.0.extend_from_slice(b"\r\n");
        Ok(head::read(self.0.into(), &HeadLimits::of(settings), &settings.credentials)?)
    }
}

/// A head without a fact.
pub(super) fn nothing() -> Parts {
    http::Request::new(()).into_parts().0
}

/// `/v1/nginx/GET/path?query`. nginx passes the fields of the client on, and those that the operator sets.
fn nginx(asking: &Parts) -> Option<Facts<'_>> {
    let described = target(asking)?.strip_prefix(NGINX)?;
    let (method, path) = described.split_at(described.find('/')?);
    Some(Facts { method: method.as_bytes(), target: path.as_bytes(), host: host(asking)? })
}

fn forward_auth(asking: &Parts) -> Option<Facts<'_>> {
    let fact = |name| only(&asking.headers, name).map(HeaderValue::as_bytes);
    Some(Facts { method: fact(&X_FORWARDED_METHOD)?, target: fact(&X_FORWARDED_URI)?, host: fact(&X_FORWARDED_HOST)? })
}

fn target(asking: &Parts) -> Option<&str> {
    asking.uri.path_and_query().map(PathAndQuery::as_str)
}

/// The host of the question, where that is the one of the described request.
fn host(asking: &Parts) -> Option<&[u8]> {
    let Some(authority) = asking.uri.authority() else {
        return only(&asking.headers, &HOST).map(HeaderValue::as_bytes);
    };
    let host = authority.as_str().as_bytes();
    let is_same = |field: &HeaderValue| field.as_bytes().eq_ignore_ascii_case(host);
    asking.headers.get_all(HOST).iter().all(is_same).then_some(host)
}

/// The value of a field that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).into_iter();
    values.next().filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use http::Request;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The described method, target and host; none when the question is refused.
    fn described(protocol: DecisionProtocol, target: &str, fields: &[(&str, &str)]) -> Option<String> {
        let mut request = Request::get(target).header("host", "h");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let head = read(protocol, &mut request.body(()).unwrap().into_parts().0, &Settings::default()).ok()?;
        let host = head.headers[HOST].to_str().unwrap();
        Some(format!("{} {} {host}", head.method, head.uri))
    }

    #[test]
    fn nginx_has_the_request_in_its_target() {
        let read = |target: &str| described(DecisionProtocol::Nginx, target, &[("x-forwarded-for", "192.0.2.1")]);
        assert_eq!(read("/v1/nginx/GET/a/../b?c=/d").as_deref(), Some("GET /a/../b?c=/d h"));
        for method in ["DELETE", "VERSION-CONTROL", "M-SEARCH", "get", "X_Y"] {
            assert_eq!(read(&format!("/v1/nginx/{method}/")), Some(format!("{method} / h")));
        }
        let long = format!("/v1/nginx/{}/a", "A".repeat(25));
        for malformed in ["/", "/v1/nginx/GET", "/v1/nginx//a", "/v1/nginx/OPTIONS*", "/v1/envoy/GET/a", &long] {
            assert_eq!(read(malformed), None, "{malformed}");
        }
        assert_eq!(described(DecisionProtocol::Nginx, "/v1/nginx/GET/a", &[]), None, "no client");
        let others = [("x-forwarded-for", "192.0.2.1"), ("x-forwarded-method", "PUT"), ("x-forwarded-uri", "/x")];
        let read = described(DecisionProtocol::Nginx, "/v1/nginx/GET/a", &others);
        assert_eq!(read.as_deref(), Some("GET /a h"), "fields of another protocol are not believed");
    }

    #[test]
    fn forward_auth_has_each_fact_once() {
        let facts = [
            ("x-forwarded-method", "POST"),
            ("x-forwarded-uri", "/a?b"),
            ("x-forwarded-host", "api.example"),
            ("x-forwarded-for", "192.0.2.1"),
        ];
        let read = |fields: &[_]| described(DecisionProtocol::ForwardAuth, "/anything", fields);
        assert_eq!(read(&facts).as_deref(), Some("POST /a?b api.example"));
        for (index, fact) in facts.iter().enumerate() {
            let mut others = facts.to_vec();
            others.remove(index);
            assert_eq!(read(&others), None, "{fact:?} is missing");
            assert_eq!(read(&[&facts[..], &[*fact]].concat()), None, "{fact:?} twice");
        }
        for target in ["a", "", "http://h/a", "*", "/a\u{e4}", "/a#b", "/a b", "/a HTTP/1.1", "/a\tb"] {
            let changed = facts.map(|(name, value)| (name, if name == "x-forwarded-uri" { target } else { value }));
            assert_eq!(read(&changed), None, "{target}");
        }
    }

    proptest! {
        /// Facts of any bytes are the head that they say, or none: no byte of one becomes a part of another.
        #[test]
        fn facts_are_the_head_that_is_read(
            method in "[A-Z-]{1,8}|[A-Z \r\n:/]{0,8}",
            target in "/[a-z/?%#]{0,8}|[ -~\r\n]{0,12}",
            host in "[a-z.]{1,8}(:80)?|[ -~\r\n]{0,8}",
            fields in vec(("[a-zA-Z_-]{1,6}|[ -~\r\n]{0,6}", "[ -~]{0,8}|[ -~\t\r\n]{0,8}"), 0..4),
        ) {
            let facts = Facts { method: method.as_bytes(), target: target.as_bytes(), host: host.as_bytes() };
            let written = HeadBytes::of(&facts).and_then(|mut bytes| {
                fields.iter().try_for_each(|(name, value)| bytes.push(name, value.as_bytes()))?;
                bytes.read(&Settings::default())
            });
            let Ok((head, _)) = written else { return Ok(()) };
            prop_assert_eq!((head.method.as_str(), head.uri.to_string()), (&*method, target));
            let told = fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.trim_matches([' ', '\t'])));
            let mut told: Vec<_> = told.chain([("host".to_owned(), host.trim_matches([' ', '\t']))]).collect();
            let mut seen: Vec<_> =
                head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.to_str().unwrap())).collect();
            told.sort_unstable();
            seen.sort_unstable();
            prop_assert_eq!(seen, told);
        }
    }
}
