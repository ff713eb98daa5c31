//! Request of an exchange (RFC 8693, section 2.1).

use crate::management::ManagementError;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;

use domain::identity::Permission;
use domain::secret::Secret;

/// The grant type.
const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
/// Types that a subject token may have: both are JWTs.
const SUBJECT_TYPES: [&str; 2] = ["urn:ietf:params:oauth:token-type:jwt", "urn:ietf:params:oauth:token-type:id_token"];
/// The type of what is issued.
pub(super) const ISSUED_TYPE: &str = "urn:ietf:params:oauth:token-type:access_token";
/// The type of a body.
const FORM: &str = "application/x-www-form-urlencoded";
/// Parameters that change what is asked for, and that no rule can answer.
const UNSUPPORTED: [&str; 3] = ["resource", "actor_token", "actor_token_type"];
/// Bytes of a body at most: several times the longest token.
const MAX_BODY: usize = 64 << 10;
/// Time for a body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Request of an exchange.
#[derive(Debug)]
pub(super) struct ExchangeRequest {
    pub(super) subject_token: Secret,
    /// The rule, `ORGANIZATION/RULE`.
    pub(super) audience: String,
    /// The permissions that are asked for; none for all of the rule's.
    pub(super) scope: Option<Vec<Permission>>,
}

impl ExchangeRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// Those of the request alone.
    pub(super) async fn read(head: &Parts, body: Incoming) -> Result<Self, ManagementError> {
        if head.method != Method::POST {
            return Err(ManagementError::ExchangeMethod);
        }
        let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(FORM) {
            return Err(ManagementError::ExchangeMediaType);
        }
        let reading = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY).collect());
        let body =
            reading.await.map_err(|_| ManagementError::ExchangeTimeout)?.map_err(|_| ManagementError::ExchangeBody)?;
        Self::parse(&body.to_bytes())
    }

    fn parse(body: &Bytes) -> Result<Self, ManagementError> {
        let form: Vec<(String, String)> = form_urlencoded::parse(body).into_owned().collect();
        // RFC 6749, section 3.2: without a value it is as if it were absent, and none is repeated.
        let find = |name: &'static str| {
            let mut values = form.iter().filter(|(found, value)| found == name && !value.is_empty());
            let value = values.next().map(|(_, value)| value.as_str());
            if values.next().is_some() {
                Err(ManagementError::ExchangeParameter(name, "is repeated"))
            } else {
                Ok(value)
            }
        };
        let require = |name| find(name)?.ok_or(ManagementError::ExchangeParameter(name, "is missing"));
        if require("grant_type")? != GRANT_TYPE {
            return Err(ManagementError::GrantType);
        }
        if !SUBJECT_TYPES.contains(&require("subject_token_type")?) {
            return Err(ManagementError::ExchangeParameter(
                "subject_token_type",
                "is not that of a JWT or an ID token",
            ));
        }
        if find("requested_token_type")?.is_some_and(|kind| kind != ISSUED_TYPE) {
            return Err(ManagementError::ExchangeParameter("requested_token_type", "is not that of an access token"));
        }
        for name in UNSUPPORTED {
            if find(name)?.is_some() {
                return Err(ManagementError::ExchangeParameter(name, "is not supported"));
            }
        }
        let scope = find("scope")?.map(parse_scope).transpose()?;
        let audience = require("audience")?.to_owned();
        Ok(Self { subject_token: Secret::new(require("subject_token")?.to_owned()), audience, scope })
    }
}

fn parse_scope(scope: &str) -> Result<Vec<Permission>, ManagementError> {
    scope.split_ascii_whitespace().map(|name| name.parse().map_err(|_| ManagementError::InvalidScope)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "grant_type=urn:ietf:params:oauth:grant-type:token-exchange&subject_token=a.b.c\
                         &subject_token_type=urn:ietf:params:oauth:token-type:jwt&audience=acme/deploy";

    fn parse(form: &str) -> Result<ExchangeRequest, &'static str> {
        ExchangeRequest::parse(&Bytes::copy_from_slice(form.as_bytes())).map_err(|error| error.code())
    }

    #[test]
    fn request_is_that_of_an_exchange() {
        let request = parse(&format!("{VALID}&scope=queries:read+queries:write&requested_token_type={ISSUED_TYPE}"));
        let ExchangeRequest { subject_token, audience, scope } = request.unwrap();
        assert_eq!(
            (subject_token.expose(), &*audience, scope.map(|scope| scope.len())),
            ("a.b.c", "acme/deploy", Some(2))
        );
        assert_eq!(parse(&format!("{VALID}&scope=")).unwrap().scope, None);
        for (form, code) in [
            (String::new(), "invalid_parameter"),
            (VALID.replace("token-exchange", "client_credentials"), "unsupported_grant_type"),
            (VALID.replace("token-type:jwt", "token-type:saml2"), "invalid_parameter"),
            (VALID.replace("&audience=acme/deploy", ""), "invalid_parameter"),
            (VALID.replace("a.b.c", ""), "invalid_parameter"),
            (format!("{VALID}&audience=acme/other"), "invalid_parameter"),
            (format!("{VALID}&actor_token=a.b.c"), "invalid_parameter"),
            (format!("{VALID}&resource=https://api.example.com"), "invalid_parameter"),
            (format!("{VALID}&requested_token_type=urn:ietf:params:oauth:token-type:jwt"), "invalid_parameter"),
            (format!("{VALID}&scope=Queries"), "invalid_scope"),
        ] {
            assert_eq!(parse(&form).unwrap_err(), code, "{form}");
        }
    }
}
