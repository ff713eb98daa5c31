//! A proof of a record, from a gateway to an auditor who has neither the journal nor a gateway.

use std::fs;
use std::process::{Command, Output};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use journal::audit::{InvalidProof, Outcome, ProvenRecord, PublicKey};
use serde_json::Value;

use super::signing_key::signed;
use crate::support::process::KEYGATE;
use crate::support::{Setup, Upstream, until};

/// The machine of an auditor: a proof of one request, and the key.
struct Auditor {
    directory: tempfile::TempDir,
    key: PublicKey,
    text: String,
    json: Value,
}

impl Auditor {
    /// Has a gateway serve a request, and gets the proof of its record.
    fn with_proof() -> Self {
        let upstream = Upstream::start();
        let (setup, key_file) = signed(&upstream);
        let api_key = setup.key();
        let gateway = setup.start();
        let response = setup.client().get("/reports", &api_key);
        assert_eq!(response.status, 200);
        let id = response.header("x-request-id").unwrap().to_owned();
        let json = until("a checkpoint covers the record", || proof_of(&setup, &id));
        let text = setup.ok(&["audit", "prove", &id]) + "\n";
        gateway.stop();
        let key = fs::read_to_string(key_file.with_extension("key.pub")).unwrap();
        Self { directory: tempfile::tempdir().unwrap(), key: key.parse().unwrap(), text, json }
    }

    /// Checks a proof where there is no configuration.
    fn keygate(&self, proof: &str, key: &str, more: &[&str]) -> Output {
        let file = self.directory.path().join("proof");
        fs::write(&file, proof).unwrap();
        let mut command = Command::new(KEYGATE);
        command.current_dir(self.directory.path()).env_remove("KEYGATE_CONFIG");
        command.args(["audit", "check-proof", "proof", "--public-key", key]).args(more).output().unwrap()
    }

    /// Expects an exit code and an error.
    fn refuses(&self, proof: &str, key: &str, code: i32, error: &str) {
        let ended = self.keygate(proof, key, &[]);
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code() == Some(code) && told.contains(error), "{error}: {ended:?}\n{told}");
        assert!(ended.stdout.is_empty(), "{ended:?}");
    }
}

/// The proof with both lines of a record, once there is one.
fn proof_of(setup: &Setup, id: &str) -> Option<Value> {
    let proof = setup.keygate(&["audit", "prove", id, "--json"]);
    let proof: Value = serde_json::from_slice(&proof.stdout).ok()?;
    (proof["lines"].as_array()?.len() == 2).then_some(proof)
}

/// A proof whose first line says something else, with the right checksum when `is_reframed`.
fn with_changed_record(text: &str, is_reframed: bool) -> String {
    let encoded = text.lines().find_map(|line| line.strip_prefix("extra ")).unwrap();
    let line = String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap().replace("/reports", "/payroll");
    let covered = line.rsplit_once('\t').unwrap().0;
    let right = format!("{covered}\t{:08x}", crc32fast::hash(covered.as_bytes()));
    text.replacen(encoded, &STANDARD.encode(if is_reframed { right } else { line }), 1)
}

#[test]
fn proof_of_a_gateway_is_checked_without_journal_and_gateway() {
    let auditor = Auditor::with_proof();
    let key = auditor.key.to_string();
    let Auditor { text, json, .. } = &auditor;
    fs::write(auditor.directory.path().join("gw.pub"), format!("{key}\n")).unwrap();
    for (proof, key) in [(text.clone(), key.as_str()), (json.to_string(), "gw.pub")] {
        let shown = auditor.keygate(&proof, key, &[]);
        let words = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.status.success(), "{words}{}", String::from_utf8_lossy(&shown.stderr));
        let id = json["id"].as_str().unwrap();
        for expected in [
            "proven: the record is in the journal example.org/gw, ",
            &format!("request  {id}\n"),
            "when     20",
            "who      key ",
            ", from 127.0.0.1",
            "what     GET /reports: GET /reports\n",
            "outcome  completed, status 200, after ",
        ] {
            assert!(words.contains(expected), "{expected}: {words}");
        }
    }
    let proven: Value = serde_json::from_slice(&auditor.keygate(text, &key, &["--json"]).stdout).unwrap();
    assert_eq!((&proven["record"]["id"], &proven["origin"]), (&json["id"], &"example.org/gw".into()));
    assert_eq!(proven["record"]["outcome"], "completed");
    let indexes: Vec<&Value> = json["lines"].as_array().unwrap().iter().map(|line| &line["index"]).collect();
    assert_eq!(proven["lines"].as_array().unwrap().iter().collect::<Vec<_>>(), indexes);
}

#[test]
fn changed_proof_is_refused_with_the_reason() {
    let auditor = Auditor::with_proof();
    let key = auditor.key.to_string();
    let text = &auditor.text;
    let [same_name, other_name] =
        ["example.org/gw", "example.org/gw-2"].map(|name| journal::audit::generate_key(name).unwrap().1.to_string());
    auditor.refuses(text, &same_name, 1, "the checkpoint is not signed by this key");
    auditor.refuses(text, &other_name, 1, "of the journal example.org/gw, and the key is of example.org/gw-2");
    auditor.refuses(text, "missing.pub", 2, "the public key is no key of the form");
    auditor.refuses("", &key, 1, "this is no proof");
    auditor.refuses(&with_changed_record(text, false), &key, 1, "was changed: its checksum does not match");
    auditor.refuses(&with_changed_record(text, true), &key, 1, "they do not lead to the checkpoint");

    let path = text.lines().nth(3).unwrap();
    let other = STANDARD.encode([7; 32]);
    auditor.refuses(&text.replacen(path, &other, 1), &key, 1, "they do not lead to the checkpoint");
    auditor.refuses(&text.replacen(&format!("{path}\n"), "", 1), &key, 1, "they do not lead to the checkpoint");
    let index = text.lines().nth(2).unwrap();
    auditor.refuses(&text.replacen(index, "index 0", 1), &key, 1, "they do not lead to the checkpoint");
    let head = "\nexample.org/gw\n";
    auditor.refuses(&text.replace(head, &format!("{head}1")), &key, 1, "the checkpoint is not signed by this key");
    auditor.refuses(text.trim_end(), &key, 1, "the proof of line 2 of the record is incomplete");
    let cut = auditor.json.to_string();
    auditor.refuses(&cut[..cut.len() / 2], &key, 1, "is incomplete: the file was truncated or changed");
    let mut foreign = auditor.json.clone();
    foreign["id"] = uuid::Uuid::nil().to_string().into();
    auditor.refuses(&foreign.to_string(), &key, 1, "not all of one record");
    let second = text.find("\nc2sp").unwrap() + 1;
    auditor.refuses(&text[second..], &key, 1, "the one with its beginning is missing");
    auditor.refuses(&format!("{text}\n{text}"), &key, 1, "not all of one record");
}

/// Of all beginnings of a proof, those that end behind the proof of the first line prove that line, and no end.
#[test]
fn truncated_proof_never_proves_an_end() {
    let auditor = Auditor::with_proof();
    let text = &auditor.text;
    let first = text.find("\nc2sp").unwrap();
    let cuts = (0..text.len()).filter(|cut| text.is_char_boundary(*cut));
    for cut in cuts {
        match ProvenRecord::check(&text[..cut], &auditor.key) {
            Ok(proven) => {
                assert!([first, first + 1].contains(&cut), "{cut} bytes");
                assert_eq!((proven.record.outcome, proven.lines.len()), (Outcome::InProgress, 1));
            }
            Err(InvalidProof::Unreadable | InvalidProof::Incomplete(_)) => {}
            Err(error) => panic!("{cut} bytes: {error}"),
        }
    }
    let shown = auditor.keygate(&text[..first], &auditor.key.to_string(), &[]);
    let words = String::from_utf8(shown.stdout).unwrap();
    assert!(words.contains("outcome  not in this proof: "), "{words}");
}
