//! The head of a gRPC call: method, content type, and the path that names service and method.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode, request};

use super::Code;

const MEDIA_TYPE: &str = "application/grpc";

/// Reason why a request is no gRPC call that can be dispatched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCall {
    /// gRPC calls are `POST`.
    #[error("a gRPC call has the method POST")]
    Method,
    /// The field `content-type` is absent, doubled, or of another media type.
    #[error("a gRPC call has one content-type: application/grpc or application/grpc+proto")]
    ContentType,
    /// The path is not `/package.Service/Method`.
    #[error("the path of a gRPC call is /package.Service/Method")]
    Path,
}

impl InvalidCall {
    /// The status of HTTP to answer with; none when a client of gRPC sent it, who is answered with
    /// [`Code::Unimplemented`] in [`trailers_only`](super::trailers_only).
    pub fn http_status(self) -> Option<StatusCode> {
        match self {
            Self::Method => Some(StatusCode::METHOD_NOT_ALLOWED),
            Self::ContentType => Some(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            Self::Path => None,
        }
    }

    /// The status of gRPC.
    pub fn code(self) -> Code {
        match self {
            Self::Method | Self::ContentType => Code::Internal,
            Self::Path => Code::Unimplemented,
        }
    }
}

/// Checks that a request is a gRPC call with messages of Protocol Buffers, and returns its path, such as
/// [`ext_authz::CHECK`](crate::ext_authz::CHECK). `te: trailers` is not required.
pub fn rpc_path(head: &request::Parts) -> Result<&str, InvalidCall> {
    if head.method != Method::POST {
        return Err(InvalidCall::Method);
    }
    if !has_media_type(&head.headers) {
        return Err(InvalidCall::ContentType);
    }
    let path = head.uri.path();
    if head.uri.query().is_some() || !is_service_and_method(path) {
        return Err(InvalidCall::Path);
    }
    Ok(path)
}

fn has_media_type(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return false };
    let Ok(text) = value.to_str() else { return false };
    let media_type = text.split(';').next().unwrap_or_default().trim_end_matches([' ', '\t']);
    let Some((begin, suffix)) = media_type.split_at_checked(MEDIA_TYPE.len()) else { return false };
    begin.eq_ignore_ascii_case(MEDIA_TYPE) && (suffix.is_empty() || suffix.eq_ignore_ascii_case("+proto"))
}

fn is_service_and_method(path: &str) -> bool {
    let is_name = |name: &str, more: &[u8]| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || more.contains(&byte))
    };
    let parts = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    parts.is_some_and(|(service, method)| is_name(service, b".") && is_name(method, b""))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn check(method: &str, path: &str, content_types: &[&str]) -> Result<String, InvalidCall> {
        let mut request = Request::builder().method(method).uri(path);
        for content_type in content_types {
            request = request.header(CONTENT_TYPE, *content_type);
        }
        rpc_path(&request.body(()).unwrap().into_parts().0).map(str::to_owned)
    }

    #[test]
    fn call_with_each_media_type_is_accepted() {
        for content_type in [
            "application/grpc",
            "application/grpc+proto",
            "Application/GRPC",
            "application/grpc;charset=utf-8",
            "application/grpc+proto ; a=b",
        ] {
            let path = check("POST", "http://keygate/grpc.health.v1.Health/Check", &[content_type]);
            assert_eq!(path.as_deref(), Ok(crate::health::CHECK), "{content_type}");
        }
    }

    #[test]
    fn other_content_types_are_refused_with_415() {
        let refused: [&[&str]; 8] = [
            &[],
            &["application/grpc-web"],
            &["application/grpc+json"],
            &["application/grpcx"],
            &["application/json"],
            &["application"],
            &["application/grpc, application/grpc"],
            &["application/grpc", "application/grpc"],
        ];
        for content_types in refused {
            let refusal = check("POST", "/a.B/C", content_types).unwrap_err();
            assert_eq!(refusal.http_status(), Some(StatusCode::UNSUPPORTED_MEDIA_TYPE), "{content_types:?}");
        }
    }

    #[test]
    fn other_methods_are_refused_with_405() {
        for method in ["GET", "PUT", "post", "OPTIONS"] {
            let refusal = check(method, "/a.B/C", &[MEDIA_TYPE]).unwrap_err();
            assert_eq!(refusal.http_status(), Some(StatusCode::METHOD_NOT_ALLOWED), "{method}");
        }
    }

    #[test]
    fn paths_that_name_no_method_are_unimplemented() {
        for path in ["/", "/a.B", "/a.B/", "//C", "/a.B/C/", "/a.B/C?x=1", "/a.B/C?", "/a-B/C", "/a.B/C.D", "/a.B/%43"]
        {
            let refusal = check("POST", path, &[MEDIA_TYPE]).unwrap_err();
            assert_eq!(refusal, InvalidCall::Path, "{path}");
            assert_eq!((refusal.http_status(), refusal.code()), (None, Code::Unimplemented));
        }
    }
}
