//! Redaction of query strings: the values of parameters that are known to hold secrets, those with the name of a field
//! for keys (`credentials.headers`), in which keys of any format stand, and keygate's own keys anywhere.

use std::borrow::Cow;

use domain::head_fields::CredentialFields;
use domain::key;

/// Shown in the place of a secret, as in the semantic conventions of OpenTelemetry.
const REDACTED: &str = "REDACTED";

/// Names of parameters whose values are secrets: credentials of RFC 6750, OAuth and OpenID Connect, of common APIs, and
/// signatures of links to object stores. In lower case, without `-` and `_`.
const SECRET: &[&str] = &[
    "accesskey",
    "accesstoken",
    "apikey",
    "apitoken",
    "auth",
    "authorization",
    "authtoken",
    "awsaccesskeyid",
    "bearer",
    "clientassertion",
    "clientsecret",
    "code",
    "codeverifier",
    "idtoken",
    "idtokenhint",
    "jwt",
    "key",
    "password",
    "passwd",
    "privatekey",
    "pwd",
    "refreshtoken",
    "secret",
    "session",
    "sessionid",
    "sid",
    "sig",
    "signature",
    "token",
    "xamzcredential",
    "xamzsecuritytoken",
    "xamzsignature",
    "xapikey",
    "xgoogcredential",
    "xgoogsignature",
];

/// Redacts a query string. Parameters keep their names, their order and their encoding.
pub(crate) fn redact<'a>(query: &'a str, credentials: &CredentialFields) -> Cow<'a, [u8]> {
    let is_secret = |letters: &[u8]| {
        SECRET.iter().any(|secret| secret.as_bytes() == letters) || is_credential(letters, credentials)
    };
    match redact_parameters(query, is_secret) {
        Some(redacted) => Cow::Owned(key::redact(redacted.as_bytes()).into_owned()),
        None => key::redact(query.as_bytes()),
    }
}

/// Redacts the values of the parameters that have the name of a field for keys: clients that send their key in both
/// places are common, whatever its format is. None when there is no such parameter.
pub fn redact_credentials(query: &str, credentials: &CredentialFields) -> Option<String> {
    if credentials.is_empty() {
        return None;
    }
    redact_parameters(query, |letters| is_credential(letters, credentials))
}

/// Redacts the parameters whose names have these letters; none when there is no such parameter.
fn redact_parameters(query: &str, is_secret: impl Fn(&[u8]) -> bool) -> Option<String> {
    let secret_name = |parameter: &'_ str| {
        let (name, _) = parameter.split_once('=')?;
        is_secret(&letters(name)).then_some(name.len())
    };
    if !query.split('&').any(|parameter| secret_name(parameter).is_some()) {
        return None;
    }
    let redacted = query.split('&').map(|parameter| match secret_name(parameter) {
        Some(length) => Cow::Owned(format!("{}={REDACTED}", &parameter[..length])),
        None => Cow::Borrowed(parameter),
    });
    Some(redacted.collect::<Vec<_>>().join("&"))
}

/// Letters and digits of a name, in lower case and without percent-encoding.
fn letters(name: &str) -> Vec<u8> {
    let decoded = percent_encoding::percent_decode_str(name);
    decoded.filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase()).collect()
}

/// Returns whether a field for keys has a name of these letters.
fn is_credential(found: &[u8], credentials: &CredentialFields) -> bool {
    credentials.iter().any(|field| letters(field.text()) == found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(query: &str) -> String {
        String::from_utf8(redact(query, &CredentialFields::NONE).into_owned()).unwrap()
    }

    #[test]
    fn values_of_secret_parameters_and_keys_are_redacted() {
        let cases = [
            ("limit=20&cursor=abc", "limit=20&cursor=abc"),
            ("api_key=abc&limit=20", "api_key=REDACTED&limit=20"),
            ("limit=1&API-Key=abc=def", "limit=1&API-Key=REDACTED"),
            ("%61ccess%5Ftoken=abc", "%61ccess%5Ftoken=REDACTED"),
            ("token", "token"),
            ("tokens=3&X-Amz-Signature=ab", "tokens=3&X-Amz-Signature=REDACTED"),
            ("", ""),
            ("&&a=1", "&&a=1"),
        ];
        for (query, shown) in cases {
            assert_eq!(redacted(query), shown);
        }
        let secret = "a".repeat(43);
        assert_eq!(redacted("q=sk_live_abcDEF123_SECRET"), "q=sk_live_abcDEF123_SECRET", "too short to be a key");
        let shown = redacted(&format!("q=sk_live_abcDEF123_{secret}&token=x"));
        assert_eq!(shown, "q=sk_live_abcDEF123_…&token=REDACTED");
    }

    #[test]
    fn values_of_parameters_named_as_fields_for_keys_are_redacted() {
        let listed = CredentialFields::new(["X-Legacy-Id", "Ocp-Key"].map(|name| name.parse().unwrap()).to_vec());
        for (query, shown) in [
            ("a=1&X-Legacy-Id=abc=d", "a=1&X-Legacy-Id=REDACTED"),
            ("x_legacy_id=abc&ocp-key=&b", "x_legacy_id=REDACTED&ocp-key=REDACTED&b"),
            ("%58legacy%49d=abc&legacyid=abc", "%58legacy%49d=REDACTED&legacyid=abc"),
        ] {
            assert_eq!(redact_credentials(query, &listed).as_deref(), Some(shown));
            assert_eq!(redact(query, &listed), shown.as_bytes());
            assert_eq!(redact_credentials(query, &CredentialFields::NONE), None);
        }
        assert_eq!(redact_credentials("a=1&token=b", &listed), None);
    }
}
