//! Requests that other proxies describe, as heads. Bytes are taken as they are: the validation of heads comes later.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use envoy_wire::ext_authz::CheckRequest;
use envoy_wire::ext_proc::HttpHeaders;
use envoy_wire::{Kind, Struct};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};

use super::settings::DecisionProtocol;
use domain::head_fields::CredentialFields;
use domain::identity::{Peer, X_FORWARDED_FOR, X_FORWARDED_HOST};
use edge::forward::{Client, TrustedProxies};

const X_FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
/// Attribute of a stream with the address of the client.
const SOURCE: &str = "source.address";
/// Beginning of the path of an nginx subrequest; method and target follow, one behind the other.
const NGINX: &str = "/v1/nginx/";
/// Beginning of the path of a question of Envoy over HTTP; the target follows.
const ENVOY: &str = "/v1/envoy";

/// Request that Envoy describes by gRPC.
pub(super) struct Described {
    pub(super) head: Parts,
    pub(super) client: Client,
}

/// The request that is described over HTTP; else the question as it is, which lacks a fact or has one twice. Keys may
/// be in these fields.
pub(super) fn read(
    protocol: DecisionProtocol,
    asking: Parts,
    credentials: &CredentialFields,
) -> Result<Parts, Box<Parts>> {
    let described = match protocol {
        DecisionProtocol::Nginx => nginx(&asking),
        DecisionProtocol::ForwardAuth => forward_auth(&asking),
        DecisionProtocol::EnvoyHttp => envoy_http(&asking),
        DecisionProtocol::Envoy => unreachable!("it describes requests in messages"),
    };
    let Some(Facts { method, target, host }) = described else { return Err(Box::new(asking)) };
    let mut head = asking;
    head.method = method;
    head.uri = Uri::from(target);
    if let Some(host) = host {
        head.headers.insert(HOST, host);
    }
    for name in [X_FORWARDED_METHOD, X_FORWARDED_URI] {
        head.headers.remove(name);
    }
    remove_body_fields(&mut head.headers);
    if protocol == DecisionProtocol::EnvoyHttp {
        head.headers = with_parted_keys(head.headers, credentials);
    }
    Ok(head)
}

/// Facts of a described request beside its fields.
struct Facts {
    method: Method,
    target: PathAndQuery,
    /// Its host; none: as the fields have it.
    host: Option<HeaderValue>,
}

/// The same fields, where Envoy has joined those of one name by commas: where a key may be, they are taken apart, so
/// that two keys are seen to be two.
fn with_parted_keys(mut headers: HeaderMap, credentials: &CredentialFields) -> HeaderMap {
    let has_key = |name: &HeaderName| *name == AUTHORIZATION || credentials.contains(name.as_str().as_bytes());
    let joined = |(name, value): (&HeaderName, &HeaderValue)| has_key(name) && value.as_bytes().contains(&b',');
    if !headers.iter().any(joined) {
        return headers;
    }
    let names: Vec<HeaderName> = headers.keys().filter(|name| has_key(name)).cloned().collect();
    for name in names {
        let values: Vec<HeaderValue> = headers.get_all(&name).iter().cloned().collect();
        headers.remove(&name);
        let parts = values.iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        for part in parts.filter_map(|part| HeaderValue::from_bytes(part.trim_ascii()).ok()) {
            headers.append(&name, part);
        }
    }
    headers
}

/// The request of `ext_authz`.
pub(super) fn of_check(
    question: &CheckRequest,
    credentials: &CredentialFields,
    trusted: &TrustedProxies,
) -> Option<Described> {
    let http = question.http()?;
    let source = question.source()?.socket_addr()?;
    let mut headers = HeaderMap::new();
    for (name, value) in http.fields().filter(|(name, _)| !name.starts_with(':')) {
        headers.append(HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(value).ok()?);
    }
    let headers = with_parted_keys(headers, credentials);
    described(http.method.as_bytes(), &http.path, http.host.as_bytes(), headers, source, trusted)
}

/// The request of `ext_proc`, from the pseudo-fields of its head and the attribute with the address of the client.
pub(super) fn of_stream(
    head: &HttpHeaders,
    attributes: &BTreeMap<String, Struct>,
    credentials: &CredentialFields,
    trusted: &TrustedProxies,
) -> Option<Described> {
    let mut sources = attributes.values().filter_map(|attributes| attributes.fields.get(SOURCE));
    let source = sources.next().filter(|_| sources.next().is_none())?;
    let Some(Kind::StringValue(source)) = &source.kind else { return None };
    let mut headers = HeaderMap::new();
    let mut pseudo = BTreeMap::new();
    for (name, value) in head.fields() {
        if name.starts_with(':') {
            if pseudo.insert(name, value).is_some() {
                return None;
            }
        } else {
            headers.append(HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(value).ok()?);
        }
    }
    let path = std::str::from_utf8(pseudo.get(":path")?).ok()?;
    let method = pseudo.get(":method")?;
    let host = pseudo.get(":authority")?;
    let headers = with_parted_keys(headers, credentials);
    described(method, path, host, headers, source.parse().ok()?, trusted)
}

/// A request with these facts, which came from this address.
fn described(
    method: &[u8],
    path: &str,
    host: &[u8],
    mut headers: HeaderMap,
    source: SocketAddr,
    trusted: &TrustedProxies,
) -> Option<Described> {
    headers.insert(HOST, HeaderValue::from_bytes(host).ok()?);
    let mut head = nothing();
    head.method = parse_method(method)?;
    head.uri = Uri::from(path.parse::<PathAndQuery>().ok().filter(|_| path.starts_with('/'))?);
    head.version = Version::HTTP_2;
    let peer = Peer { address: source, tls: None, certificate: None };
    let client = Client::find(&peer, &headers, trusted);
    remove_body_fields(&mut headers);
    head.headers = headers;
    Some(Described { head, client })
}

/// Removes the fields of the body, which stays with the other proxy.
fn remove_body_fields(headers: &mut HeaderMap) {
    for name in [CONTENT_LENGTH, TRANSFER_ENCODING, EXPECT] {
        headers.remove(name);
    }
}

/// A head without a fact.
pub(super) fn nothing() -> Parts {
    http::Request::new(()).into_parts().0
}

/// `/v1/nginx/GET/path?query`. nginx passes the fields of the client on, and those that the operator sets.
fn nginx(asking: &Parts) -> Option<Facts> {
    let described = target(asking)?.strip_prefix(NGINX)?;
    let (method, path) = described.split_at(described.find('/')?);
    only(&asking.headers, &X_FORWARDED_FOR)?;
    Some(Facts { method: parse_method(method.as_bytes())?, target: path.parse().ok()?, host: None })
}

fn forward_auth(asking: &Parts) -> Option<Facts> {
    let headers = &asking.headers;
    let method = parse_method(only(headers, &X_FORWARDED_METHOD)?.as_bytes())?;
    let target = only(headers, &X_FORWARDED_URI)?.to_str().ok().filter(|target| target.starts_with('/'))?;
    only(headers, &X_FORWARDED_FOR)?;
    let host = only(headers, &X_FORWARDED_HOST)?.clone();
    Some(Facts { method, target: target.parse().ok()?, host: Some(host) })
}

fn envoy_http(asking: &Parts) -> Option<Facts> {
    let path = target(asking)?.strip_prefix(ENVOY).filter(|path| path.starts_with('/'))?;
    Some(Facts { method: asking.method.clone(), target: path.parse().ok()?, host: None })
}

fn target(asking: &Parts) -> Option<&str> {
    asking.uri.path_and_query().map(PathAndQuery::as_str)
}

/// A method as clients write it: upper case.
fn parse_method(text: &[u8]) -> Option<Method> {
    let is_method = !text.is_empty() && text.iter().all(u8::is_ascii_uppercase);
    Method::from_bytes(text).ok().filter(|_| is_method)
}

/// The value of a field that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).into_iter();
    values.next().filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn described(protocol: DecisionProtocol, target: &str, fields: &[(&str, &str)]) -> Option<String> {
        let mut request = Request::get(target).header("host", "h");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let head = read(protocol, request.body(()).unwrap().into_parts().0, &CredentialFields::NONE).ok()?;
        let host = head.headers[HOST].to_str().unwrap();
        Some(format!("{} {} {host}", head.method, head.uri))
    }

    #[test]
    fn nginx_has_the_request_in_its_target() {
        let read = |target| described(DecisionProtocol::Nginx, target, &[("x-forwarded-for", "192.0.2.1")]);
        assert_eq!(read("/v1/nginx/GET/a/../b?c=/d").as_deref(), Some("GET /a/../b?c=/d h"));
        assert_eq!(read("/v1/nginx/DELETE/").as_deref(), Some("DELETE / h"));
        for malformed in
            ["/", "/v1/nginx/GET", "/v1/nginx//a", "/v1/nginx/get/a", "/v1/nginx/OPTIONS*", "/v1/envoy/GET/a"]
        {
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
        for target in ["a", "", "http://h/a", "*", "/a\u{e4}"] {
            let changed = facts.map(|(name, value)| (name, if name == "x-forwarded-uri" { target } else { value }));
            assert_eq!(read(&changed), None, "{target}");
        }
    }

    #[test]
    fn envoy_has_its_own_method_and_the_target_below_the_prefix() {
        let read = |target| described(DecisionProtocol::EnvoyHttp, target, &[]);
        assert_eq!(read("/v1/envoy/a?b").as_deref(), Some("GET /a?b h"));
        for malformed in ["/v1/envoy", "/v1/envoya", "/a", "/v1/envoy?a"] {
            assert_eq!(read(malformed), None, "{malformed}");
        }
    }
}
