//! Invalid input, as each caller is told of it.

use serde_json::json;

use super::caller::Caller;
use super::fixture::{JSON, Setup};
use crate::support::Response;

/// Queries of a list of requests, each with a code and words of the detail.
const QUERIES: [(&str, &str, &str); 7] = [
    ("offset=3", "invalid_parameter", "`offset`"),
    ("limit=1&limit=2", "invalid_parameter", "`limit` is given twice"),
    ("limit=ten", "invalid_limit", "`limit`"),
    ("limit=0", "invalid_limit", "at least 1"),
    ("refused=yes", "invalid_parameter", "`refused`"),
    ("outcome=bad", "invalid_parameter", "rate_limited"),
    ("cursor=x", "invalid_cursor", "`cursor`"),
];

/// Bodies of a creation that are not read, each with words of the detail.
const BODIES: [(&str, &str); 9] = [
    ("", "empty"),
    ("[\"laptop\"]", "not a JSON object"),
    ("{\"name\":", "line 1 column 8"),
    ("{}", "missing field `name`"),
    ("{\"name\": \"x\", \"nmae\": 1}", "unknown field `nmae`"),
    ("{\"name\": 1}", "line 1 column 10"),
    ("{\"name\": \"x\", \"name\": \"y\"}", "duplicate field `name`"),
    ("{\"name\": \"x\"} {}", "trailing characters"),
    ("{\"name\": \"x\", \"policy\": {\"tags\": {\"a\": \"1\", \"a\": \"2\"}}}", "uplicate field"),
];

#[test]
fn invalid_input_is_named_to_each_caller() {
    let setup = Setup::embedded();
    let org = setup.org("acme");
    let keys = format!("/orgs/{org}/keys");
    for (number, mut caller) in Caller::all(&setup, &org).into_iter().enumerate() {
        let kind = caller.kind;
        let says = |answer: Response, code: &str, words: &str| {
            assert_eq!(answer.code(), code, "{kind}: {answer:?}");
            assert!(answer.json()["detail"].as_str().unwrap().contains(words), "{kind}: {words}: {answer:?}");
        };
        let body = json!({ "name": "laptop", "user": "ada@acme.example" }).to_string();
        let made = caller.call("POST", &keys, &[], &body).json();
        let of_key = format!("/keys/{}", made["id"].as_str().unwrap());
        for (query, code, words) in QUERIES {
            says(caller.get(&format!("{of_key}/requests?{query}")), code, words);
        }
        for (body, words) in BODIES {
            says(caller.call("POST", &keys, &[JSON], body), "invalid_body", words);
        }
        let bad_name = json!({ "name": "x\u{200b}", "user": "ada@acme.example" });
        says(caller.send("POST", &keys, &bad_name), "invalid_name", "1 to 100 characters");
        for media in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", ""] {
            let refused = caller.call("POST", &keys, &[("Content-Type", media)], &body);
            assert_eq!((refused.status, &*refused.code()), (415, "unsupported_media_type"), "{kind} {media}");
        }
        let too_long = caller.send("POST", &format!("{of_key}/rotate"), &json!({ "overlap_seconds": 31_622_401 }));
        says(too_long, "invalid_overlap", "366d");
        for expected in [json!("yesterday"), json!(1)] {
            let body = json!({ "expected_rotated": expected });
            assert_eq!(caller.send("POST", &format!("{of_key}/rotate"), &body).code(), "invalid_body", "{kind}");
        }
        let large = " ".repeat((64 << 10) + 1);
        let large = caller.call("POST", &keys, &[], &large);
        assert_eq!((large.status, &*large.code()), (413, "body_too_large"), "{kind}");
        assert_eq!(caller.get(&keys).json()["items"].as_array().unwrap().len(), number + 1, "{kind}");
    }
}
