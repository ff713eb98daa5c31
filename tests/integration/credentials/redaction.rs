//! Keys of another system have no form that could be recognized: wherever a listed name says that a value is a key, no
//! record, line or span has it.

use std::io::Write as _;

use super::{BLOCKS, bare, import};
use crate::support::{Client, Collector, Gateway, Upstream};

/// Key as another system made it.
const IMPORTED: &str = "Zm9yZWlnbi1rZXktMTIzNDU2Nzg5";

#[test]
fn key_of_another_system_is_in_no_record_line_or_span() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let telemetry = format!(
        "telemetry: {{ access_log: {{ file: access.log }}, traces: {{ endpoint: 'http://{}' }} }}\n",
        collector.address()
    );
    let routes = "routes: [{ name: all, path: '/**', query_in_audit: true, log_query: true }]\n";
    let blocks = format!("{}{telemetry}{routes}", BLOCKS.replace("apikey]", "apikey, Legacy-Id]"));
    let (gateway, key) = Gateway::with(&[upstream.address], &blocks).and_key();
    import(&gateway, &key, IMPORTED);
    let mut client = Client::connect(gateway.address);
    let queries = ["X-API-Key", "apikey", "x_api_key", "%61pikey", "LegacyId", "legacy-id", "Legacy_Id"];
    for (number, name) in queries.into_iter().enumerate() {
        let target = format!("/{number}?limit=1&{name}={IMPORTED}&last=2");
        for (field, status) in [("Legacy-Id", 200), ("legacy_id", 200), ("X-API-Key", 200)] {
            let response = client.send(bare("GET", &target, &[(field, IMPORTED)])).response();
            assert_eq!(response.status, status, "{name}");
        }
        assert_eq!(client.get(&target, "unknown").status, 401, "{name}");
        // The upstream gets the query as it was sent: what is in it is no credential.
        assert_eq!(upstream.last().path(), target);
        let twice = [("Legacy-Id", IMPORTED), ("X-API-Key", IMPORTED)];
        assert_eq!(client.send(bare("GET", &target, &twice)).response().status, 400, "{name}");
        let (name, value) = (format!("{IMPORTED} /"), format!("{name}: {IMPORTED}"));
        Client::connect(gateway.address).send(format!("GET /{name} HTTP/1.1\r\n{value}\r\n\r\n")).response();
    }
    let records = gateway.records();
    assert!(records.len() >= 3 * queries.len(), "{}", records.len());
    for record in &records {
        assert!(!record.path.contains(IMPORTED), "{}", record.path);
        assert!(record.path.contains("?limit=1&") && record.path.ends_with("=REDACTED&last=2"), "{}", record.path);
    }
    let directory = gateway.dir.path().to_owned();
    // The last lines and spans are written when the gateway ends; the directory is looked through before it goes.
    let copy = tempfile::tempdir().unwrap();
    let log = directory.join("access.log");
    crate::support::eventually("the lines of all requests are written", || {
        std::fs::read_to_string(&log).unwrap_or_default().lines().count() >= 6 * queries.len()
    });
    std::fs::copy(&log, copy.path().join("access.log")).unwrap();
    let is_clean = |bytes: &[u8]| !bytes.windows(IMPORTED.len()).any(|window| window == IMPORTED.as_bytes());
    for entry in std::fs::read_dir(directory.join("audit")).unwrap() {
        let path = entry.unwrap().path();
        assert!(path.is_dir() || is_clean(&std::fs::read(&path).unwrap()), "{}", path.display());
    }
    let metrics = Client::connect(gateway.admin).get("/metrics", "").body;
    drop(gateway);
    let lines = std::fs::read(copy.path().join("access.log")).unwrap();
    std::io::stdout().write_all(&lines[..lines.len().min(600)]).unwrap();
    assert!(is_clean(&lines) && is_clean(&metrics));
    assert!(String::from_utf8_lossy(&lines).contains("=REDACTED&last=2"));
    assert!(!collector.received().is_empty());
    for export in collector.received() {
        assert!(is_clean(&export.bytes));
    }
}
