//! The list `audit.ship` of the configuration.

use std::path::Path;
use std::time::Duration;

use journal::shipping::Destination;
use keygate::config::Config;

fn parse(audit: &str) -> Result<Config, platform::settings::SettingsErrors> {
    let text = format!(
        "{{listen: [address: '127.0.0.1:8080'], admin: {{socket: a.sock}}, state: {{embedded: {{path: s.db}}}}, \
         upstream: {{endpoints: ['http://127.0.0.1:8081']}}, audit: {{path: audit, {audit}}}}}"
    );
    Config::parse(Path::new("keygate.yaml"), &text)
}

fn errors(audit: &str) -> String {
    parse(audit).unwrap_err().to_string()
}

#[test]
fn sinks_are_read_with_their_defaults() {
    let config = parse("retention: {unshipped: 1GiB}").unwrap();
    assert_eq!((config.shipping.sinks.len(), config.audit.retention_unshipped), (0, 1 << 30));
    assert!(config.shipping.postgresql().is_none());
    let config = parse(
        "ship: [{postgresql: {url: 'postgresql://a@localhost/b'}}, \
         {name: far, postgresql: {url: 'postgresql://a@db.example/b', password: hunter2, retention: 30d}}]",
    )
    .unwrap();
    assert_eq!(config.audit.retention_unshipped, 10 << 30);
    let names: Vec<&str> = config.shipping.sinks.iter().map(|sink| &*sink.name).collect();
    assert_eq!(names, ["postgresql", "far"]);
    let Destination::Postgresql(far) = &config.shipping.sinks[1].destination else { panic!("a database") };
    assert_eq!(far.retention, Some(Duration::from_secs(30 * 86_400)));
    assert!(!format!("{config:?}").contains("hunter2"), "passwords are not shown");
    let warnings = config.warnings().join("\n");
    assert!(
        warnings.contains("`far` sends audit records to db.example") && !warnings.contains("localhost"),
        "{warnings}"
    );
}

#[test]
fn wrong_sinks_are_errors() {
    let twice = "ship: [{postgresql: {url: 'postgresql://a@h/b'}}, {postgresql: {url: 'postgresql://a@h/c'}}]";
    assert!(errors(twice).contains("has two sinks named `postgresql`"), "{}", errors(twice));
    assert!(errors("ship: [{name: a}]").contains("a sink has one kind"));
    assert!(errors("ship: [{name: A/b, postgresql: {url: 'postgresql://a@h/b'}}]").contains("`A/b` is not a name"));
    let no_host = errors("ship: [{postgresql: {url: 'postgresql://user:hunter2@/b'}}]");
    assert!(no_host.contains("names no host") && !no_host.contains("hunter2"), "{no_host}");
    let retention = errors("ship: [{postgresql: {url: 'postgresql://a@h/b', retention: 1h}}]");
    assert!(retention.contains("out of range"), "{retention}");
    let tls = errors("ship: [{postgresql: {url: 'postgresql://a@h/b', tls: {ca: /nowhere}}}]");
    assert!(tls.contains("/nowhere"), "{tls}");
}

#[test]
fn sinks_of_every_kind_are_read() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let config = parse(&format!(
        "ship: [{{files: {{path: out}}}}, {{http: {{url: 'http://siem.example/in', secret: {secret}}}}}, {{otlp: \
         {{endpoint: 'https://[::1]:4318', headers: {{authorization: hunter2}}}}}}, {{syslog: {{server: \
         'tls://logs.example'}}}}, {{name: other, syslog: {{server: 'tls://[::1]:601', facility: local7}}}}]"
    ))
    .unwrap();
    let shown = format!("{config:?}");
    assert!(!shown.contains("MfKQ") && !shown.contains("hunter2"), "secrets are not shown");
    let names: Vec<&str> = config.shipping.sinks.iter().map(|sink| &*sink.name).collect();
    assert_eq!(names, ["files", "http", "otlp", "syslog", "other"]);
    let of = |number: usize| &config.shipping.sinks[number].destination;
    let Destination::Files(files) = of(0) else { panic!("files") };
    assert_eq!((files.path.as_path(), files.size, files.every), (Path::new("out"), 64 << 20, Duration::from_secs(300)));
    let Destination::Otlp(otlp) = of(2) else { panic!("otlp") };
    assert_eq!((otlp.url.uri().to_string(), otlp.url.host()), ("https://[::1]:4318/v1/logs".into(), "::1"));
    let Destination::Syslog(syslog) = of(3) else { panic!("syslog") };
    assert_eq!((&*syslog.host, syslog.port, syslog.facility), ("logs.example", 6514, 13));
    let Destination::Syslog(other) = of(4) else { panic!("syslog") };
    assert_eq!((&*other.host, other.port, other.facility), ("::1", 601, 23));
    let warnings = config.warnings().join("\n");
    assert!(warnings.contains("`http` sends audit records to siem.example unencrypted"), "{warnings}");

    for (sink, error) in [
        ("{files: {path: a}, http: {url: 'http://h', secret: s}}", "is not a secret"),
        ("{files: {path: a}, syslog: {server: 'tls://h'}}", "a sink has one kind"),
        ("{files: {path: a, size: 1}}", "out of range"),
        ("{http: {url: 'ftp://h', secret: s}}", "is not an http or https address"),
        ("{http: {url: 'http://user:pass@h', secret: s}}", "is not an http or https address"),
        (
            "{http: {url: 'http://h', secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw, tls: {}}}",
            "has no effect without `https` in `url`",
        ),
        ("{otlp: {endpoint: 'https://h', headers: {'a b': c}}}", "is not the name of a field"),
        ("{syslog: {server: 'tcp://h:601'}}", "is not the address of a syslog server"),
        ("{syslog: {server: 'tls://h', facility: nine}}", "is not a facility"),
    ] {
        let errors = errors(&format!("ship: [{sink}]"));
        assert!(errors.contains(error) && !errors.contains("pass@"), "{sink}: {errors}");
    }
}

#[test]
fn sinks_can_change_without_a_restart() {
    let old = parse("ship: []").unwrap();
    let new = parse("ship: [{postgresql: {url: 'postgresql://a@localhost/b'}}]").unwrap();
    assert!(old.restart_only_changes(&new).is_empty());
    let new = parse("retention: {unshipped: 1GiB}").unwrap();
    assert_eq!(old.restart_only_changes(&new), ["audit.retention.unshipped"]);
}
