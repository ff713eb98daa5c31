//! Second door: the head of the upstream's response becomes the head that goes to the client, or is refused.
//!
//! The upstream may be broken or hostile. A head that the HTTP library reads leniently, and that another reader of the
//! same bytes could read otherwise, is refused as a whole: its meaning is not certain.
//!
//! - Framing is checked, and set anew. Of the fields that frame, only the `Content-Length` of a body that is not there
//!   (in answer to `HEAD`, or with 304) is kept. The HTTP library sets every other length, from the body itself.
//! - Hop-by-hop fields and those that `Connection` names are removed, and so are fields whose names have other
//!   characters than letters, digits and `-`: some reader could fold such a name into another one.

use http::header::{CONNECTION, CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};

use super::features::{RequestFeatures, lists, only};
use super::{cookies, field_names, hop_by_hop, trailers};
use domain::head_fields::FieldSet;
use domain::http_syntax;

/// Reason why a response must not be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidResponse {
    /// The status is not one of HTTP.
    #[error("its status is not within 100 to 599")]
    Status,
    /// The upstream switches to a protocol that the client did not ask for.
    #[error("it switches to a protocol that was not asked for")]
    UnexpectedUpgrade,
    /// There is a `Transfer-Encoding` other than exactly one `chunked`, or in a version of HTTP that has none.
    #[error("its Transfer-Encoding is not exactly `chunked`, or is not for its version of HTTP")]
    TransferEncoding,
    /// `Content-Length` is not exactly one number.
    #[error("its Content-Length is not exactly one number")]
    ContentLength,
    /// There are both `Transfer-Encoding` and `Content-Length`.
    #[error("it has both Transfer-Encoding and Content-Length")]
    TwoFramings,
}

/// Origin on which browsers see a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOrigin {
    /// One of the API alone.
    Api,
    /// That of the dashboard. There the upstream may neither delete what browsers keep for it, and so sign its users
    /// out, nor widen the scope of its service workers to the dashboard's pages.
    Dashboard,
}

/// Fields that act on a whole origin in browsers (W3C Clear Site Data, section 3.1; Service Workers, section 3.1.2).
const ORIGIN_WIDE: [HeaderName; 2] =
    [HeaderName::from_static("clear-site-data"), HeaderName::from_static("service-worker-allowed")];

/// Rewrites a head with these fields for the client. Returns how many fields were dropped for their names.
///
/// # Errors
/// [`InvalidResponse`]: the response must not be forwarded.
pub fn rewrite_response(
    head: &mut Parts,
    fields: FieldSet,
    features: &RequestFeatures,
    origin: ResponseOrigin,
) -> Result<u64, InvalidResponse> {
    let protocol = check_status(head, features)?;
    let framing = check_framing(head, fields)?;
    if protocol.is_some() && framing != Framing::None {
        return Err(InvalidResponse::UnexpectedUpgrade);
    }
    let length = framing.length_of_absent_body(head.status, features);
    let has_trailers = features.trailers && framing == Framing::Chunked;
    let announced = if has_trailers { trailers::announced(&head.headers) } else { None };
    let headers = &mut head.headers;
    let dropped = remove_fields(headers, fields, origin);
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    if let Some(announced) = announced {
        headers.insert(TRAILER, announced);
    }
    if let Some(protocol) = protocol {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol.clone());
    }
    // The library keeps the reason phrase there, which is for one connection only.
    head.extensions.clear();
    // The version is that of the gateway, not that of the upstream (RFC 9110, section 6.2).
    head.version = Version::HTTP_11;
    Ok(dropped)
}

/// Framing that a response states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    None,
    Chunked,
    Length(u64),
}

impl Framing {
    /// Length to send though there is no body, in answer to `HEAD` or with 304: that of the body
    /// which a GET would bring.
    fn length_of_absent_body(self, status: StatusCode, features: &RequestFeatures) -> Option<u64> {
        match self {
            Self::Length(_) if status == StatusCode::NO_CONTENT => None,
            Self::Length(length) if features.head_only || status == StatusCode::NOT_MODIFIED => Some(length),
            _ => None,
        }
    }
}

/// Removes what must not be forwarded, of the fields that the head has. Returns how many fields were
/// dropped for their names.
fn remove_fields(headers: &mut HeaderMap, fields: FieldSet, origin: ResponseOrigin) -> u64 {
    if fields.contains(FieldSet::CONTENT_LENGTH) {
        headers.remove(CONTENT_LENGTH);
    }
    hop_by_hop::remove_noted(headers, fields);
    if fields.contains(FieldSet::SET_COOKIE) {
        cookies::clean_response(headers);
    }
    let may_drop = fields.contains(FieldSet::ODD_NAME.with(FieldSet::ORIGIN_WIDE));
    if may_drop { drop_names(headers, origin) } else { 0 }
}

fn check_framing(head: &Parts, fields: FieldSet) -> Result<Framing, InvalidResponse> {
    let is_chunked = fields.contains(FieldSet::TRANSFER_ENCODING) && check_transfer_encoding(head)?;
    let has_length = fields.contains(FieldSet::CONTENT_LENGTH);
    match (is_chunked, if has_length { check_content_length(&head.headers)? } else { None }) {
        (true, Some(_)) => Err(InvalidResponse::TwoFramings),
        (true, None) => Ok(Framing::Chunked),
        (false, Some(length)) => Ok(Framing::Length(length)),
        (false, None) => Ok(Framing::None),
    }
}

/// Protocol that the connection is switched to, when it is the one that the client asked for.
fn check_status<'a>(head: &Parts, features: &'a RequestFeatures) -> Result<Option<&'a HeaderValue>, InvalidResponse> {
    match head.status.as_u16() {
        101 => {
            let protocol = features.upgrade.as_ref().filter(|_| head.version == Version::HTTP_11);
            let given = only(&head.headers, &UPGRADE).filter(|_| lists(&head.headers, &CONNECTION, b"upgrade"));
            let same =
                |wanted: &HeaderValue, given: &HeaderValue| wanted.as_bytes().eq_ignore_ascii_case(given.as_bytes());
            match (protocol, given) {
                (Some(protocol), Some(given)) if same(protocol, given) => Ok(Some(protocol)),
                _ => Err(InvalidResponse::UnexpectedUpgrade),
            }
        }
        100..=599 => Ok(None),
        _ => Err(InvalidResponse::Status),
    }
}

/// Returns whether the response is chunked (RFC 9112, section 6.1).
fn check_transfer_encoding(head: &Parts) -> Result<bool, InvalidResponse> {
    let mut fields = head.headers.get_all(TRANSFER_ENCODING).into_iter();
    match (fields.next(), fields.next()) {
        (None, _) => Ok(false),
        (Some(only), None) if head.version == Version::HTTP_11 && only.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            Ok(true)
        }
        _ => Err(InvalidResponse::TransferEncoding),
    }
}

/// Length of the body, if the head has it (RFC 9110, section 8.6).
fn check_content_length(headers: &HeaderMap) -> Result<Option<u64>, InvalidResponse> {
    let mut fields = headers.get_all(CONTENT_LENGTH).into_iter();
    match (fields.next(), fields.next()) {
        (None, _) => Ok(None),
        (Some(only), None) => {
            http_syntax::parse_content_length(only.as_bytes()).map(Some).ok_or(InvalidResponse::ContentLength)
        }
        _ => Err(InvalidResponse::ContentLength),
    }
}

/// Drops the fields whose names are not plain, and those that would act on the dashboard. Returns the
/// number of the former.
fn drop_names(headers: &mut HeaderMap, origin: ResponseOrigin) -> u64 {
    let is_dashboard = origin == ResponseOrigin::Dashboard;
    let is_odd = |name: &HeaderName| !field_names::is_plain(name);
    let dropped = headers.keys().filter(|name| is_odd(name) || is_dashboard && ORIGIN_WIDE.contains(name));
    let names: Vec<HeaderName> = dropped.cloned().collect();
    let odd = names.iter().filter(|name| is_odd(name));
    let fields: usize = odd.map(|name| headers.get_all(name).iter().count()).sum();
    for name in names {
        headers.remove(name);
    }
    fields as u64
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::super::features::AllowedFeatures;
    use super::*;

    fn features_of(method: &str) -> RequestFeatures {
        let request = http::Request::builder().method(method).header("connection", "upgrade");
        let (head, ()) = request.header("upgrade", "websocket").body(()).unwrap().into_parts();
        let upgrade = [HeaderValue::from_static("websocket")];
        RequestFeatures::from_head(&head, true, AllowedFeatures { upgrade: &upgrade, trailers: false })
    }

    fn rewrite(status: u16, fields: &[(&str, &str)], head_only: bool) -> Result<Vec<String>, InvalidResponse> {
        rewrite_for(&features_of(if head_only { "HEAD" } else { "POST" }), status, fields)
    }

    fn rewrite_for(
        features: &RequestFeatures,
        status: u16,
        fields: &[(&str, &str)],
    ) -> Result<Vec<String>, InvalidResponse> {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        let (mut head, ()) = response.body(()).unwrap().into_parts();
        let fields = FieldSet::of_map(&head.headers);
        rewrite_response(&mut head, fields, features, ResponseOrigin::Api)?;
        Ok(head.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect())
    }

    #[test]
    fn transfer_encoding_is_exactly_one_chunked() {
        let te = "transfer-encoding";
        assert_eq!(rewrite(200, &[(te, "chunked")], false), Ok(vec![]));
        assert_eq!(rewrite(200, &[(te, "Chunked")], false), Ok(vec![]));
        for value in ["gzip", "gzip, chunked", "chunked, chunked", ",chunked", "chunked,", "", "identity", "xchunked"] {
            assert_eq!(rewrite(200, &[(te, value)], false), Err(InvalidResponse::TransferEncoding), "{value:?}");
            assert_eq!(rewrite(200, &[(te, value)], true), Err(InvalidResponse::TransferEncoding), "{value:?}");
        }
        assert_eq!(rewrite(200, &[(te, "chunked"), (te, "chunked")], false), Err(InvalidResponse::TransferEncoding));
        let (mut head, ()) = Response::builder().header(te, "chunked").body(()).unwrap().into_parts();
        head.version = Version::HTTP_10;
        assert_eq!(
            rewrite_response(&mut head, FieldSet::TRANSFER_ENCODING, &features_of("POST"), ResponseOrigin::Api),
            Err(InvalidResponse::TransferEncoding)
        );
    }

    #[test]
    fn content_length_is_exactly_one_number() {
        let cl = "content-length";
        for value in ["", "+1", "-1", "1, 1", "0x1", "1 1", "99999999999999999999999", "1.0"] {
            assert_eq!(rewrite(200, &[(cl, value)], false), Err(InvalidResponse::ContentLength), "{value:?}");
            assert_eq!(rewrite(304, &[(cl, value)], true), Err(InvalidResponse::ContentLength), "{value:?}");
        }
        assert_eq!(rewrite(200, &[(cl, "1"), (cl, "1")], false), Err(InvalidResponse::ContentLength));
        assert_eq!(
            rewrite(200, &[(cl, "1"), ("transfer-encoding", "chunked")], false),
            Err(InvalidResponse::TwoFramings)
        );
    }

    #[test]
    fn content_length_is_kept_for_absent_bodies_only() {
        let length = [("content-length", "007")];
        assert_eq!(rewrite(200, &length, false), Ok(vec![]));
        assert_eq!(rewrite(200, &length, true), Ok(vec!["content-length: 7".into()]));
        assert_eq!(rewrite(304, &length, false), Ok(vec!["content-length: 7".into()]));
        assert_eq!(rewrite(204, &length, true), Ok(vec![]));
    }

    #[test]
    fn status_is_one_of_http() {
        assert_eq!(rewrite(599, &[], false), Ok(vec![]));
        assert_eq!(rewrite(600, &[], false), Err(InvalidResponse::Status));
        assert_eq!(rewrite(999, &[], false), Err(InvalidResponse::Status));
        assert_eq!(rewrite(101, &[("upgrade", "websocket")], false), Err(InvalidResponse::UnexpectedUpgrade));
    }

    #[test]
    fn hop_by_hop_fields_and_odd_names_are_removed() {
        let fields = [
            ("connection", "x-named"),
            ("x-named", "1"),
            ("keep-alive", "1"),
            ("x_odd", "1"),
            ("x_odd", "2"),
            ("x.odd", "1"),
            ("x-kept", "1"),
        ];
        assert_eq!(rewrite(200, &fields, false), Ok(vec!["x-kept: 1".into()]));
    }

    #[test]
    fn upgrade_is_to_the_protocol_that_was_asked_for() {
        let get = features_of("GET");
        let connection = ("connection", "keep-alive, Upgrade");
        let switched = rewrite_for(&get, 101, &[connection, ("upgrade", "WebSocket")]);
        assert_eq!(switched, Ok(vec!["connection: upgrade".into(), "upgrade: websocket".into()]));
        for fields in [
            &[connection][..],
            &[("upgrade", "websocket")],
            &[connection, ("upgrade", "h2c")],
            &[connection, ("upgrade", "websocket, h2c")],
            &[connection, ("upgrade", "websocket"), ("upgrade", "websocket")],
            &[connection, ("upgrade", "websocket"), ("content-length", "0")],
            &[connection, ("upgrade", "websocket"), ("transfer-encoding", "chunked")],
        ] {
            assert_eq!(rewrite_for(&get, 101, fields), Err(InvalidResponse::UnexpectedUpgrade), "{fields:?}");
        }
        assert_eq!(
            rewrite_for(&features_of("POST"), 101, &[connection, ("upgrade", "websocket")]),
            Err(InvalidResponse::UnexpectedUpgrade)
        );
    }
}
