//! The access log: every request has one line, which says what it was, and none of its secrets.

mod requests;
mod secrets;
mod destinations;

use std::path::Path;

use serde_json::Value;

use crate::support::{Gateway, eventually};

/// Block of the configuration with an access log in the file `access.log`.
const FILE: &str = "telemetry: { access_log: { file: access.log } }\n";

/// The whole lines of a file, each of which must be an object of printable ASCII. A line that is just
/// being written may end it.
fn lines_of(path: &Path) -> Vec<Value> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let line = |line: &[u8]| {
        assert!(line.iter().all(|byte| (b' '..=b'~').contains(byte)), "{}", String::from_utf8_lossy(line));
        serde_json::from_slice(line).unwrap()
    };
    bytes[..whole].split(|byte| *byte == b'\n').filter(|text| !text.is_empty()).map(line).collect()
}

/// The lines of the gateway's file, once there are as many.
#[track_caller]
fn lines(gateway: &Gateway, count: usize) -> Vec<Value> {
    let path = gateway.dir.path().join("access.log");
    eventually("the access log has its lines", || {
        std::fs::read(&path).is_ok_and(|text| text.split(|b| *b == b'\n').count() > count)
    });
    let lines = lines_of(&path);
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}
