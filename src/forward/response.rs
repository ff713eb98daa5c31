//! From the head of an upstream's response to the head that is shown downstream, or a refusal to show it.
//!
//! The upstream may be broken or hostile. What the HTTP library reads leniently, and another reader of the same bytes
//! could read otherwise, is refused as a whole: nobody can know what such a response means.
//!
//! - Framing is checked, and made anew: of the fields that frame, only the `Content-Length` of a body that is not there
//!   (in answer to `HEAD`, or with 304) is kept. Every other length is the HTTP library's to say, from the body itself.
//! - Hop-by-hop fields and those that `Connection` names are removed, and so are fields whose names have other characters
//!   than letters, digits and `-`: some reader might fold them into a name that means something.

use http::header::{CONNECTION, CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};

use super::features::{RequestFeatures, lists, only};
use super::{cookies, field_names, hop_by_hop, trailers};

/// Why a response must not be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidResponse {
    /// The status is none that HTTP has.
    #[error("its status is not within 100 to 599")]
    Status,
    /// The upstream switched to a protocol that nobody had asked for.
    #[error("it switches to a protocol that was not asked for")]
    Unasked,
    /// `Transfer-Encoding` is there and not exactly one `chunked`, or in a version that has none.
    #[error("its Transfer-Encoding is not exactly `chunked`, or is not for its version of HTTP")]
    TransferEncoding,
    /// `Content-Length` is not exactly one number.
    #[error("its Content-Length is not exactly one number")]
    ContentLength,
    /// Both are there.
    #[error("it has both Transfer-Encoding and Content-Length")]
    TwoFramings,
}

/// Makes the head to send downstream of the upstream's. Returns how many fields were dropped for their names.
///
/// # Errors
/// [`InvalidResponse`]: why the response must not be shown.
pub fn rewrite_response(head: &mut Parts, asked: &RequestFeatures) -> Result<u64, InvalidResponse> {
    let protocol = check_status(head, asked)?;
    let chunked = check_transfer_encoding(head)?;
    let length = check_content_length(&head.headers)?;
    if chunked && length.is_some() {
        return Err(InvalidResponse::TwoFramings);
    }
    if protocol.is_some() && (chunked || length.is_some()) {
        return Err(InvalidResponse::Unasked);
    }
    let bodiless = asked.head_only || head.status == StatusCode::NOT_MODIFIED;
    let length = length.filter(|_| bodiless && head.status != StatusCode::NO_CONTENT);
    let announced = if asked.trailers && chunked { trailers::announced(&head.headers) } else { None };
    let headers = &mut head.headers;
    headers.remove(CONTENT_LENGTH);
    hop_by_hop::remove(headers);
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
    cookies::keep_ours(headers);
    // What the library knows beyond the head: the reason phrase, which is for one connection only.
    head.extensions.clear();
    Ok(drop_odd_names(&mut head.headers))
}

/// The protocol that the connection is switched to, when it is the one that was asked for.
fn check_status<'a>(head: &Parts, asked: &'a RequestFeatures) -> Result<Option<&'a HeaderValue>, InvalidResponse> {
    match head.status.as_u16() {
        101 => {
            let protocol = asked.upgrade.as_ref().filter(|_| head.version == Version::HTTP_11);
            let given = only(&head.headers, &UPGRADE).filter(|_| lists(&head.headers, &CONNECTION, b"upgrade"));
            let same =
                |asked: &HeaderValue, given: &HeaderValue| asked.as_bytes().eq_ignore_ascii_case(given.as_bytes());
            match (protocol, given) {
                (Some(protocol), Some(given)) if same(protocol, given) => Ok(Some(protocol)),
                _ => Err(InvalidResponse::Unasked),
            }
        }
        100..=599 => Ok(None),
        _ => Err(InvalidResponse::Status),
    }
}

/// Whether the response is chunked (RFC 9112, section 6.1).
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

/// The body's length, when it is said (RFC 9110, section 8.6).
fn check_content_length(headers: &HeaderMap) -> Result<Option<u64>, InvalidResponse> {
    let mut fields = headers.get_all(CONTENT_LENGTH).into_iter();
    match (fields.next(), fields.next()) {
        (None, _) => Ok(None),
        (Some(only), None) => digits(only).map(Some).ok_or(InvalidResponse::ContentLength),
        _ => Err(InvalidResponse::ContentLength),
    }
}

fn digits(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}

/// Drops the fields whose names are not plain, and counts them.
pub(super) fn drop_odd_names(headers: &mut HeaderMap) -> u64 {
    let odd: Vec<HeaderName> = headers.keys().filter(|name| !field_names::is_plain(name.as_str())).cloned().collect();
    let fields: usize = odd.iter().map(|name| headers.get_all(name).iter().count()).sum();
    for name in odd {
        headers.remove(name);
    }
    fields as u64
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::super::features::AllowedFeatures;
    use super::*;

    fn asked(method: &str) -> RequestFeatures {
        let request = http::Request::builder().method(method).header("connection", "upgrade");
        let (head, ()) = request.header("upgrade", "websocket").body(()).unwrap().into_parts();
        let upgrade = [HeaderValue::from_static("websocket")];
        RequestFeatures::from_head(&head, true, AllowedFeatures { upgrade: &upgrade, trailers: false })
    }

    fn shown(status: u16, fields: &[(&str, &str)], head_only: bool) -> Result<Vec<String>, InvalidResponse> {
        shown_to(&asked(if head_only { "HEAD" } else { "POST" }), status, fields)
    }

    fn shown_to(asked: &RequestFeatures, status: u16, fields: &[(&str, &str)]) -> Result<Vec<String>, InvalidResponse> {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        let (mut head, ()) = response.body(()).unwrap().into_parts();
        rewrite_response(&mut head, asked)?;
        Ok(head.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect())
    }

    #[test]
    fn only_one_plain_chunked_is_a_transfer_encoding() {
        let te = "transfer-encoding";
        assert_eq!(shown(200, &[(te, "chunked")], false), Ok(vec![]));
        assert_eq!(shown(200, &[(te, "Chunked")], false), Ok(vec![]));
        for value in ["gzip", "gzip, chunked", "chunked, chunked", ",chunked", "chunked,", "", "identity", "xchunked"] {
            assert_eq!(shown(200, &[(te, value)], false), Err(InvalidResponse::TransferEncoding), "{value:?}");
            assert_eq!(shown(200, &[(te, value)], true), Err(InvalidResponse::TransferEncoding), "{value:?}");
        }
        assert_eq!(shown(200, &[(te, "chunked"), (te, "chunked")], false), Err(InvalidResponse::TransferEncoding));
        let (mut head, ()) = Response::builder().header(te, "chunked").body(()).unwrap().into_parts();
        head.version = Version::HTTP_10;
        assert_eq!(rewrite_response(&mut head, &asked("POST")), Err(InvalidResponse::TransferEncoding));
    }

    #[test]
    fn only_one_plain_number_is_a_length() {
        let cl = "content-length";
        for value in ["", "+1", "-1", "1, 1", "0x1", "1 1", "99999999999999999999999", "1.0"] {
            assert_eq!(shown(200, &[(cl, value)], false), Err(InvalidResponse::ContentLength), "{value:?}");
            assert_eq!(shown(304, &[(cl, value)], true), Err(InvalidResponse::ContentLength), "{value:?}");
        }
        assert_eq!(shown(200, &[(cl, "1"), (cl, "1")], false), Err(InvalidResponse::ContentLength));
        assert_eq!(
            shown(200, &[(cl, "1"), ("transfer-encoding", "chunked")], false),
            Err(InvalidResponse::TwoFramings)
        );
    }

    #[test]
    fn a_length_is_kept_only_for_a_body_that_is_not_there() {
        let length = [("content-length", "007")];
        assert_eq!(shown(200, &length, false), Ok(vec![]));
        assert_eq!(shown(200, &length, true), Ok(vec!["content-length: 7".into()]));
        assert_eq!(shown(304, &length, false), Ok(vec!["content-length: 7".into()]));
        assert_eq!(shown(204, &length, true), Ok(vec![]));
    }

    #[test]
    fn statuses_are_those_of_http() {
        assert_eq!(shown(599, &[], false), Ok(vec![]));
        assert_eq!(shown(600, &[], false), Err(InvalidResponse::Status));
        assert_eq!(shown(999, &[], false), Err(InvalidResponse::Status));
        assert_eq!(shown(101, &[("upgrade", "websocket")], false), Err(InvalidResponse::Unasked));
    }

    #[test]
    fn fields_for_one_connection_and_odd_names_go() {
        let fields = [
            ("connection", "x-named"),
            ("x-named", "1"),
            ("keep-alive", "1"),
            ("x_odd", "1"),
            ("x_odd", "2"),
            ("x.odd", "1"),
            ("x-kept", "1"),
        ];
        assert_eq!(shown(200, &fields, false), Ok(vec!["x-kept: 1".into()]));
    }

    #[test]
    fn only_the_protocol_that_was_asked_for_is_switched_to() {
        let get = asked("GET");
        let connection = ("connection", "keep-alive, Upgrade");
        let switched = shown_to(&get, 101, &[connection, ("upgrade", "WebSocket")]);
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
            assert_eq!(shown_to(&get, 101, fields), Err(InvalidResponse::Unasked), "{fields:?}");
        }
        assert_eq!(
            shown_to(&asked("POST"), 101, &[connection, ("upgrade", "websocket")]),
            Err(InvalidResponse::Unasked)
        );
    }
}
