//! The quota of keys in the configuration: its range, and where its errors are reported.

use std::path::Path;

use keygate::config::Config;

use crate::config::{MINIMAL, parse};

/// The range that `config/keygate.yaml` gives for `requests` is the one that works, at both ends.
#[test]
fn range_of_requests_is_the_documented_one_and_errors_are_on_the_written_key() {
    let documented = std::fs::read_to_string("config/keygate.yaml").unwrap();
    let quota = |block: &str| {
        let text = format!(
            "listen: [{{ address: 127.0.0.1:0 }}]\nadmin: {{ socket: admin.sock }}\n\
             upstream: {{ endpoints: ['http://127.0.0.1:8081'] }}\nstate: {{ embedded: {{ path: state.db }} }}\n\
             audit: {{ path: audit }}\nlimits: {{ key: {{ {block} }} }}\n"
        );
        Config::parse(Path::new("keygate.yaml"), &text)
    };
    for (largest, per) in [(1_000_000_000_u32, "1s"), (2_501_999, "1h")] {
        let text = format!("1 to {largest} with");
        assert!(documented.contains(&text) && documented.contains(&format!("`per: {per}`")), "{text} {per}");
        quota(&format!("requests: {largest}, per: {per}")).unwrap();
        let error = quota(&format!("requests: {}, per: {per}", largest + 1)).unwrap_err().to_string();
        assert!(error.contains("limits.key.requests: "), "{error}");
    }
    let error = quota("requests: 10000000").unwrap_err().to_string();
    assert!(
        error.contains(
            "limits.key.requests: 10000000 per 3600s is too large; give at most 2501999, or use a shorter period, such \
             as 2778 per 1s"
        ),
        "{error}"
    );
    let error = quota("per: 366d").unwrap_err().to_string();
    assert!(error.contains("limits.key.per: 1000 per 31622400s is too large; give at most 284"), "{error}");
}

#[test]
fn unused_keys_are_never_or_after_a_week_at_least() {
    let read = |value: &str| parse(&MINIMAL.replace("limits:\n", &format!("limits:\n  unused_keys: {value}\n")));
    assert_eq!(parse(MINIMAL).unwrap().bounds.unused_keys, None);
    assert_eq!(read("never").unwrap().bounds.unused_keys, None);
    assert_eq!(read("7d").unwrap().bounds.unused_keys, Some(std::time::Duration::from_secs(7 * 24 * 3600)));
    for value in ["6d", "0s", "sometimes"] {
        let problems = read(value).unwrap_err().to_string();
        assert!(problems.contains("limits.unused_keys"), "{problems}");
    }
}
