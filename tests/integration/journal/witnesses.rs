//! Witnesses: a small one of its own, which verifies by the standards what it is given before it cosigns.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use journal::audit::{Checkpoints, Journal, LatestCheckpoint, PublicKey, Settings, Witness, is_signed_by};
use platform::metrics::Metrics;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::checkpoints::{assert_proven, latest, signed};
use super::support::{Caller, END, block_on, keep_plain};
use super::tree::{self, Hash};
use crate::support::redis::Certificates;
use crate::support::{Setup, Upstream, eventually, until};

const NAME: &str = "witness.example.org/w1";

/// A witness of one tree.
struct TestWitness {
    key: Ed25519KeyPair,
    /// Public key of the tree.
    log: String,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    size: u64,
    root: Hash,
    /// Statuses of the answers.
    answers: Vec<u16>,
}

/// The form of a public key by C2SP.
fn public_key(key: &Ed25519KeyPair) -> String {
    let bytes = [&[4], key.public_key().as_ref()].concat();
    let id = Sha256::digest([NAME.as_bytes(), b"\n", &bytes].concat());
    let id: String = id[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{NAME}+{id}+{}", STANDARD.encode(bytes))
}

impl TestWitness {
    fn new(seed: u8, log: &PublicKey) -> Arc<Self> {
        let key = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
        Arc::new(Self { key, log: log.to_string(), seen: Mutex::default() })
    }

    fn public_key(&self) -> PublicKey {
        public_key(&self.key).parse().unwrap()
    }

    /// Answers requests until the listener's process ends.
    fn serve(self: &Arc<Self>, listener: TcpListener) {
        let witness = Arc::clone(self);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A client that has given up meanwhile has no answer.
                drop(witness.answer(stream));
            }
        });
    }

    /// The same over TLS. A handshake that fails is no request.
    fn serve_tls(self: &Arc<Self>, listener: TcpListener, certificates: &Certificates) {
        let (chain, key) = certificates.server();
        let chain = vec![CertificateDer::from_pem_file(chain).unwrap()];
        let key = PrivateKeyDer::from_pem_file(key).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
        let witness = Arc::clone(self);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
                drop(witness.answer(&mut stream));
                stream.conn.send_close_notify();
                stream.flush().ok();
            }
        });
    }

    fn answer(&self, mut stream: impl Read + Write) -> std::io::Result<()> {
        let mut input = BufReader::new(&mut stream);
        let (mut line, mut length) = (String::new(), 0);
        input.read_line(&mut line)?;
        // The client has given up before.
        if line.is_empty() {
            return Ok(());
        }
        assert!(line.starts_with("POST /prefix/add-checkpoint HTTP/1.1"), "{line}");
        while line.trim() != "" {
            line.clear();
            input.read_line(&mut line)?;
            if let Some((_, value)) = line.to_lowercase().split_once("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        input.read_exact(&mut body)?;
        let (status, body) = self.add_checkpoint(&String::from_utf8(body).unwrap());
        self.seen.lock().unwrap().answers.push(status);
        let kind = if status == 409 { "text/x.tlog.size" } else { "text/plain" };
        write!(
            stream,
            "HTTP/1.1 {status} status\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    }

    /// C2SP tlog-witness, `add-checkpoint`.
    fn add_checkpoint(&self, body: &str) -> (u16, String) {
        let (head, note) = body.split_once("\n\n").unwrap();
        let mut lines = head.lines();
        let old: u64 = lines.next().unwrap().strip_prefix("old ").unwrap().parse().unwrap();
        let proof: Vec<Hash> = lines.map(|hash| STANDARD.decode(hash).unwrap().try_into().unwrap()).collect();
        let (text, signatures) = note.split_once("\n\n").unwrap();
        let text = format!("{text}\n");
        if tree::verify_signature(&text, signatures.lines().next().unwrap(), &self.log).is_none() {
            return (403, String::new());
        }
        let mut fields = text.lines().skip(1);
        let size: u64 = fields.next().unwrap().parse().unwrap();
        let root: Hash = STANDARD.decode(fields.next().unwrap()).unwrap().try_into().unwrap();
        let mut seen = self.seen.lock().unwrap();
        if old != seen.size {
            return (409, format!("{}\n", seen.size));
        }
        if !is_consistent((old, seen.root), (size, root), proof) {
            return (422, String::new());
        }
        (seen.size, seen.root) = (size, root);
        (200, self.cosign(&text))
    }

    /// C2SP tlog-cosignature, version 1.
    fn cosign(&self, text: &str) -> String {
        let time: u64 = 1_795_000_000;
        let signature = self.key.sign(format!("cosignature/v1\ntime {time}\n{text}").as_bytes());
        let id = Sha256::digest([NAME.as_bytes(), b"\n\x04", self.key.public_key().as_ref()].concat());
        let bytes = [&id[..4], &time.to_be_bytes(), signature.as_ref()].concat();
        format!("— another.example.org AAAAAAAAAAAA\n— {NAME} {}\n", STANDARD.encode(bytes))
    }
}

/// Checks a consistency proof by the recursive definition of RFC 9162, section 2.1.4.1.
fn is_consistent((old, old_root): (u64, Hash), (size, root): (u64, Hash), mut proof: Vec<Hash>) -> bool {
    if old == 0 {
        return proof.is_empty();
    }
    old <= size && roots(old, size, true, &mut proof, old_root) == Some((old_root, root)) && proof.is_empty()
}

/// The roots of the old tree and the new one by a proof.
fn roots(old: u64, size: u64, is_known: bool, proof: &mut Vec<Hash>, old_root: Hash) -> Option<(Hash, Hash)> {
    if old == size {
        let root = if is_known { old_root } else { proof.pop()? };
        return Some((root, root));
    }
    let split = size.next_power_of_two() / 2;
    let sibling = proof.pop()?;
    if old <= split {
        let (before, after) = roots(old, split, is_known, proof, old_root)?;
        return Some((before, tree::node(&after, &sibling)));
    }
    let (before, after) = roots(old - split, size - split, false, proof, old_root)?;
    Some((tree::node(&sibling, &before), tree::node(&sibling, &after)))
}

fn with_witness(settings: &Settings, listener: &TcpListener, public_key: PublicKey) -> Settings {
    let url = format!("http://{}/prefix/", listener.local_addr().unwrap()).parse().unwrap();
    let witness = Witness { url, public_key, tls: platform::tls::ClientSettings::default() };
    let checkpoints = Checkpoints { witnesses: vec![witness], ..settings.checkpoints.clone().unwrap() };
    Settings { checkpoints: Some(checkpoints), ..settings.clone() }
}

fn cosigned(settings: &Settings) -> Option<(u64, String)> {
    let note = LatestCheckpoint::read(&settings.path).unwrap()?.cosigned?;
    Some((note.lines().nth(1).unwrap().parse().unwrap(), note))
}

async fn use_keys(journal: &Journal, count: usize) {
    let caller = Caller::random();
    for _ in 0..count {
        journal.begin(&caller.opening()).await.unwrap().close(END);
    }
}

#[test]
fn unavailable_witness_delays_nothing_and_gets_a_proof_from_where_it_was() {
    let directory = TempDir::new().unwrap();
    let (settings, key) = signed(directory.path());
    keep_plain(&settings);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let witness = TestWitness::new(7, &key);
    let settings = with_witness(&settings, &listener, witness.public_key());
    // It takes connections, and answers none.
    let journal = Journal::open(settings.clone(), Metrics::new().audit).unwrap();
    block_on(use_keys(&journal, 40));
    eventually("checkpoints are published", || {
        LatestCheckpoint::read(&settings.path).unwrap().is_some_and(|latest| latest.size > 80)
    });
    assert_eq!(cosigned(&settings), None);
    witness.serve(listener.try_clone().unwrap());
    let (size, note) = until("the witness cosigns", || cosigned(&settings));
    assert!(is_signed_by(&note, &key) && is_signed_by(&note, &witness.public_key()));
    assert!(!note.contains("another.example.org"), "cosignatures of unknown keys are left out");
    assert_proven(&settings, &note, &key);
    // The next one has a proof from memory.
    block_on(use_keys(&journal, 40));
    let (size, _) = until("the witness cosigns the next one", || cosigned(&settings).filter(|(next, _)| *next > size));
    block_on(journal.close());
    // After a restart it is not known what it has seen: the proof is made of the files, over several segments.
    let journal = Journal::open(settings.clone(), Metrics::new().audit).unwrap();
    block_on(use_keys(&journal, 40));
    until("the witness cosigns after a restart", || cosigned(&settings).filter(|(next, _)| *next > size + 80));
    block_on(journal.close());
    let answers = witness.seen.lock().unwrap().answers.clone();
    assert!(answers.contains(&409) && answers.iter().all(|status| [200, 409].contains(status)), "{answers:?}");
}

#[test]
fn cosignature_of_another_key_is_not_published() {
    let directory = TempDir::new().unwrap();
    let (settings, key) = signed(directory.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = with_witness(&settings, &listener, TestWitness::new(8, &key).public_key());
    TestWitness::new(7, &key).serve(listener);
    let metrics = Metrics::new().audit;
    let journal = Journal::open(settings.clone(), metrics.clone()).unwrap();
    block_on(use_keys(&journal, 3));
    eventually("the answer is refused", || metrics.cosignatures_failed.get() > 0);
    block_on(journal.close());
    assert_eq!((cosigned(&settings), metrics.cosignatures_received.get()), (None, 0));
    assert_proven(&settings, &latest(&settings).note, &key);
}

#[test]
fn witness_that_has_seen_more_lines_is_reported() {
    let (upstream, certificates) = (Upstream::start(), Certificates::generate());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (setup, witness) = gateway_with(&upstream, &[("127.0.0.1", port, &certificates)]);
    witness.seen.lock().unwrap().size = 1_000_000;
    witness.serve_tls(listener, &certificates);
    let key = setup.key();
    let gateway = setup.start_logged();
    // Without new lines there is no new checkpoint.
    assert_eq!(setup.client().get("/", &key).status, 200);
    let line = until("it is reported", || {
        let log = fs::read_to_string(setup.path().join("log")).unwrap();
        log.lines().find(|line| line.contains("no cosignature")).map(str::to_owned)
    });
    assert!(line.contains("has cosigned 1000000 lines") && line.contains("lines were lost"), "{line}");
    gateway.stop();
    assert!(!setup.path().join("audit/checkpoint.cosigned").exists());
}

/// A gateway whose checkpoints these witnesses are to cosign: their hosts, ports, and authorities.
fn gateway_with(upstream: &Upstream, witnesses: &[(&str, u16, &Certificates)]) -> (Setup, Arc<TestWitness>) {
    let setup = Setup::new(upstream.address, "");
    let plain = setup.text();
    setup.write(&plain.replace("path: audit }", "path: audit, checkpoints: { key_file: audit.key } }"));
    let key: PublicKey = setup.ok(&["audit", "key", "new", "--name", "example.org/gw-1"]).parse().unwrap();
    let witness = TestWitness::new(9, &key);
    let configured = witnesses.iter().map(|(host, port, certificates)| {
        let (key, ca) = (public_key(&witness.key), certificates.ca());
        format!("{{ url: 'https://{host}:{port}/prefix', public_key: {key}, tls: {{ ca: '{}' }} }}", ca.display())
    });
    let checkpoints = format!(
        "path: audit, checkpoints: {{ key_file: audit.key, witnesses: [{}] }} }}",
        configured.collect::<Vec<_>>().join(", ")
    );
    setup.write(&plain.replace("path: audit }", &checkpoints));
    (setup, witness)
}

#[test]
fn witness_over_tls_cosigns_and_delays_no_request_while_it_is_away() {
    let (upstream, certificates) = (Upstream::start(), Certificates::generate());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (setup, witness) = gateway_with(&upstream, &[("127.0.0.1", port, &certificates)]);
    let key = setup.key();
    let gateway = setup.start_logged();
    let audit = setup.path().join("audit");
    // It takes the connection, and no handshake goes on.
    let mut client = setup.client();
    for _ in 0..50 {
        assert_eq!(client.get("/", &key).status, 200);
    }
    eventually("checkpoints are published", || {
        LatestCheckpoint::read(&audit).unwrap().is_some_and(|latest| latest.size > 100)
    });
    assert_eq!(LatestCheckpoint::read(&audit).unwrap().unwrap().cosigned, None);
    witness.serve_tls(listener, &certificates);
    let note = until("the witness cosigns", || LatestCheckpoint::read(&audit).unwrap()?.cosigned);
    assert!(is_signed_by(&note, &witness.public_key()));
    gateway.stop();
    let file = audit.join("checkpoint.cosigned");
    let arguments = ["audit", "verify", "--checkpoint", file.to_str().unwrap(), "--witness-key"];
    setup.ok(&[&arguments[..], &[&public_key(&witness.key)]].concat());
}

#[test]
fn witness_with_a_wrong_certificate_gets_no_checkpoint_and_the_log_says_why() {
    let (upstream, certificates, stranger) = (Upstream::start(), Certificates::generate(), Certificates::generate());
    // Of an authority that is not trusted, and for another name.
    let listeners = ["127.0.0.1", "127.0.0.2"].map(|host| TcpListener::bind((host, 0)).unwrap());
    let [first, second] = [0, 1].map(|number| listeners[number].local_addr().unwrap().port());
    let witnesses = [("127.0.0.1", first, &stranger), ("127.0.0.2", second, &certificates)];
    let (setup, witness) = gateway_with(&upstream, &witnesses);
    let key = setup.key();
    listeners.into_iter().for_each(|listener| witness.serve_tls(listener, &certificates));
    let gateway = setup.start_logged();
    assert_eq!(setup.client().get("/", &key).status, 200);
    let log = || fs::read_to_string(setup.path().join("log")).unwrap();
    let line = |port: u16| {
        log()
            .lines()
            .find(|line| line.contains("no cosignature") && line.contains(&port.to_string()))
            .map(str::to_owned)
    };
    let unknown = until("the first witness is refused", || line(first));
    let misnamed = until("the second witness is refused", || line(second));
    let reasons = ["the TLS handshake failed", "the certificate is not"];
    assert!(
        reasons.iter().all(|reason| unknown.contains(reason) && misnamed.contains(reason)),
        "{unknown}\n{misnamed}"
    );
    assert!(
        misnamed.contains("the certificate is not for 127.0.0.2") && unknown.contains("not signed by the key"),
        "{unknown}\n{misnamed}"
    );
    assert_eq!(setup.client().get("/", &key).status, 200);
    gateway.stop();
    assert_eq!(witness.seen.lock().unwrap().answers, [0; 0], "no witness has got a checkpoint");
    assert!(!setup.path().join("audit/checkpoint.cosigned").exists());
}
