//! Settings that are gone: a file that has one gets an error at its place, with the setting to use instead.

use super::config::{MINIMAL, parse};

/// Errors of a file, one line each.
fn errors_of(file: &str) -> Vec<String> {
    parse(file).unwrap_err().iter().map(ToString::to_string).collect()
}

/// Errors of the minimal file with more keys of its upstream.
fn errors_with(keys: &str) -> Vec<String> {
    errors_of(&MINIMAL.replace("8081]", &format!("8081]\n  {keys}")))
}

#[test]
fn success_rates_name_the_thresholds() {
    let errors = errors_with("outlier: { success_rate: 0, min_requests: 50, window: 10s }");
    for (error, key) in errors.iter().zip(["success_rate", "min_requests", "window"]) {
        assert!(error.contains(&format!("upstream.outlier.{key}: is no setting any more")), "{error}");
        assert!(error.contains("Lower `server_errors`") && error.contains("`upstream.health`"), "{error}");
    }
    assert_eq!(errors.len(), 3, "{errors:?}");
}

#[test]
fn connections_ahead_of_requests_name_the_life_of_idle_ones() {
    let errors = errors_with("connections: { max: 2, min_idle: 3 }");
    assert!(errors[0].contains("upstream.connections.min_idle: is no setting any more"), "{errors:?}");
    assert!(errors[0].contains("raise `max_idle`") && errors.len() == 1, "{errors:?}");
}

#[test]
fn decisions_for_envoy_over_http_name_grpc() {
    let listener =
        "listen:\n  - { address: 127.0.0.1:1, serves: decisions, decisions: { protocol: envoy_http, slots: none } }";
    let errors = errors_of(&MINIMAL.replacen("listen:", listener, 1));
    assert!(errors[0].contains("listen[0].decisions.protocol: `envoy_http` is no protocol any more"), "{errors:?}");
    assert!(errors[0].contains("give envoy") && errors[0].contains("envoy-ext-authz.yaml"), "{errors:?}");
    assert_eq!(errors.len(), 1, "{errors:?}");
}

#[test]
fn access_log_by_syslog_names_the_other_destinations() {
    for syslog in ["syslog: { server: 'udp://127.0.0.1:514' }", "file: a.log, syslog: { server: 'unix:/dev/log' }"] {
        let errors = errors_of(&format!("{MINIMAL}telemetry: {{ access_log: {{ {syslog}, requests: all }} }}\n"));
        assert!(errors[0].contains("telemetry.access_log.syslog: is no destination any more"), "{errors:?}");
        assert!(errors[0].contains("give file: PATH or stdout: true") && errors.len() == 1, "{errors:?}");
    }
}
