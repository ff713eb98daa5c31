//! Output on the pages, beside what the programs print.

use std::fs;

use serde_json::Value;

use super::commands::with_certificate;
use crate::procedures::{LastMonth, Office};
use crate::support::page::block;
use crate::support::shell::fits;
use crate::support::{Shell, eventually};

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// Numbers as `N`: they differ from run to run.
fn without_numbers(text: &str) -> String {
    let digits = text.chars().map(|c| if c.is_ascii_digit() { 'N' } else { c });
    digits.fold(String::new(), |mut text, c| {
        if c != 'N' || !text.ends_with('N') {
            text.push(c);
        }
        text
    })
}

/// Panics unless both have the same members, with values of the same kinds.
fn same_shape(page: &Value, real: &Value, place: &str) {
    match (page, real) {
        (Value::Object(page), Value::Object(real)) => {
            let names = |object: &serde_json::Map<String, Value>| object.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(page), names(real), "{place}");
            page.iter().for_each(|(name, value)| same_shape(value, &real[name], &format!("{place}.{name}")));
        }
        _ => assert_eq!(std::mem::discriminant(page), std::mem::discriminant(real), "{place}: {page} {real}"),
    }
}

#[test]
fn access_log_has_the_members_of_the_page() {
    let office = with_certificate();
    let setup = &office.setup;
    let more = "routes: [{ name: queries.list, path: '/api/**' }]\ntelemetry: { access_log: { file: access.log } }\n";
    setup.write(&format!("{}{more}", setup.text()));
    let key = office.key_in("acme");
    let gateway = setup.start();
    let request = "curl -ks --http1.1 -H \"Authorization: Bearer $KEY\" https://127.0.0.1:8080/api/queries";
    office.shell(&key).run(request);
    let log = setup.path().join("access.log");
    eventually("the line is written", || fs::read_to_string(&log).is_ok_and(|text| text.ends_with('\n')));
    let page: Value = serde_json::from_str(&block("{\"@timestamp\":\"2026-11-22T17:04:05.12345")).unwrap();
    let real: Value = serde_json::from_str(&fs::read_to_string(&log).unwrap()).unwrap();
    same_shape(&page, &real, "");
    gateway.stop();
}

#[test]
fn export_has_the_lines_of_the_page() {
    let office = Office::embedded();
    let key = office.key_in("acme");
    let shell = Shell::of(&office.setup);
    shell.run(
        "keygate quota set --org acme --units 2000000 --per month
        keygate user create --org acme --service deployer --responsible ada@example.com --permission queries:read
        keygate federation create github --org acme --user deployer --issuer https://ci.example.com \
            --audience https://api.example.com --claim sub=repo:acme/app:** --permission queries:read --max 15m
        keygate token create pipeline --allow keys:read",
    );
    let gateway = office.setup.start();
    assert_eq!(office.setup.client().get("/api/queries", &key).status, 200);
    gateway.stop();
    let export = shell.run("keygate state export");
    let export: String = export.lines().filter(|line| line.starts_with('{')).map(|line| format!("{line}\n")).collect();
    let page = block("{\"format\":\"keygate-state\",\"version\":4,\"t");
    assert!(fits(&lines(&page), &lines(&export)), "{page}\n{export}");
}

#[test]
fn responses_have_the_fields_of_the_page() {
    let office = Office::embedded();
    let limits = "limits: { key: { requests: 10000000, per: 1s }, org: { concurrent: 1000 } }";
    assert!(office.setup.text().contains(limits));
    office.setup.write(&office.setup.text().replace(limits, ""));
    let key = office.key_in("acme");
    let gateway = office.setup.start();
    let response = office.setup.client().get("/api/queries", &key);
    let page = block("RateLimit-Policy: \"key\";q=1000;w=3600, \"");
    let (policy, rest) = page.trim_end().split_once('\n').unwrap();
    assert_eq!(policy.strip_prefix("RateLimit-Policy: "), response.header("ratelimit-policy"));
    let limit = format!("RateLimit: {}", response.header("ratelimit").unwrap());
    assert_eq!(without_numbers(rest), without_numbers(&limit));
    gateway.stop();
}

#[test]
fn own_usage_is_fetched_and_has_the_members_of_the_page() {
    let office = Office::embedded();
    office.setup.write(&format!("{}routes: [{{ name: usage, path: /usage, serve: usage }}]\n", office.setup.text()));
    let key = office.key_in("acme");
    let gateway = office.setup.start();
    let page = block("$ curl -H \"Authorization: Bearer $KEY\" h");
    let (command, response) = page.trim_start_matches("$ ").split_once('\n').unwrap();
    let shell = office.shell(&key).replace("https://api.example.com", &format!("http://{}", office.setup.address));
    let output = shell.run(&command.replace("curl", "curl -s"));
    same_shape(&serde_json::from_str(response).unwrap(), &serde_json::from_str(&output).unwrap(), "");
    gateway.stop();
}

#[test]
fn event_of_a_day_is_that_of_the_page() {
    let month = LastMonth::new();
    let since = month.day.checked_sub(jiff::Span::new().days(1)).unwrap();
    let command = format!("keygate usage --by key --per day --since {since}T00:00:00Z --cloudevents 2> /dev/null");
    let event = month.shell.run(&command);
    let page = block("{\"specversion\":\"1.0\",\"id\":\"day:2026-11-2").replace("\n ", "");
    let parsed: Value = serde_json::from_str(&event).unwrap();
    let gateway = parsed["source"].as_str().unwrap().rsplit('/').next().unwrap();
    let key = parsed["subject"].as_str().unwrap().rsplit('/').next().unwrap();
    let next = month.day.checked_add(jiff::Span::new().days(1)).unwrap();
    let page = page.replace("2026-11-21", &month.day.to_string()).replace("2026-11-22", &next.to_string());
    let page = page.replace("mZvzkepCv", key).replace("gw-1", gateway).replace("\"requests\":41", "\"requests\":3");
    assert!(fits(&lines(&page), &lines(&event)), "{page}\n{event}");
    month.gateway.stop();
}
