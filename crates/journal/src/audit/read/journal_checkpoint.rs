//! Checkpoints that are lines of the journal, for the sinks that keep copies of them.

use serde::Serialize;

use crate::audit::format::frame;
use crate::audit::format::segment_event::CheckpointSeal;
use crate::audit::tree::lines;
use domain::clock::{self, Micros};
use tlog::checkpoint::SignedCheckpoint;
use tlog::{hash, key};

/// A signed checkpoint of the journal's tree. Its signature is not verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JournalCheckpoint {
    /// Gateway in whose journal it is.
    pub gateway: String,
    /// Time at which it was signed.
    #[serde(with = "clock::rfc3339")]
    pub time: Micros,
    /// Name of the tree.
    pub origin: String,
    /// Number of lines that it covers.
    pub size: u64,
    /// Root of the tree, in base64.
    pub root: String,
    /// The signed note, by which `keygate audit verify --checkpoint` compares the journal.
    pub note: String,
}

/// Reads the line of a checkpoint; `None` for any other line, and for one that is damaged.
pub(super) fn read_line(line: &[u8], gateway: &str) -> Option<JournalCheckpoint> {
    lines::is_checkpoint(line).then(|| frame::verify_line(line))??;
    let seal: CheckpointSeal<'_> = serde_json::from_slice(line).ok()?;
    // A line that the gateway has not written must not stop a sink: databases take no NUL, which no note has, and no
    // long key.
    let is_usual = |signed: &SignedCheckpoint| key::is_name(&signed.checkpoint.origin);
    let signed = SignedCheckpoint::parse(&seal.checkpoint).filter(is_usual)?;
    Some(JournalCheckpoint {
        gateway: gateway.to_owned(),
        time: seal.time,
        root: hash::encode(&signed.checkpoint.root),
        size: signed.checkpoint.size,
        origin: signed.checkpoint.origin,
        note: seal.checkpoint.into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::format::frame::Line as _;
    use tlog::checkpoint::Checkpoint;
    use tlog::key::SigningKey;

    const TIME: Micros = Micros(1_795_279_543_130_943);

    fn line_of(note: &str) -> Vec<u8> {
        let mut line = Vec::new();
        frame::with_serialized(&CheckpointSeal::new(3, &[7; 32], TIME, note), |body| body.write_line(9, &mut line));
        line.pop();
        line
    }

    fn signed() -> SignedCheckpoint {
        let (key, _) = SigningKey::generate("example.org/gw-1").unwrap();
        let checkpoint = Checkpoint { origin: key.public().name().to_owned(), size: 3, root: [7; 32] };
        SignedCheckpoint::sign(checkpoint, &key)
    }

    #[test]
    fn checkpoint_is_read_from_its_line() {
        let note = signed().note.to_string();
        let expected = JournalCheckpoint {
            gateway: "gw-1".into(),
            time: TIME,
            origin: "example.org/gw-1".into(),
            size: 3,
            root: hash::encode(&[7; 32]),
            note: note.clone(),
        };
        assert_eq!(read_line(&line_of(&note), "gw-1"), Some(expected));
    }

    #[test]
    fn damaged_line_and_unusual_names_are_left_out() {
        let note = signed().note.to_string();
        let mut damaged = line_of(&note);
        damaged[40] ^= 1;
        assert_eq!(read_line(&damaged, "gw-1"), None);
        let long = note.replace("example.org", &"x".repeat(300));
        let nul = note.replace("\n— example.org/gw-1", "\n— example\0org/gw-1");
        assert!(nul.contains('\0') && SignedCheckpoint::parse(&long).is_some());
        for other in [long, nul, "no note".to_owned()] {
            assert_eq!(read_line(&line_of(&other), "gw-1"), None, "{other:?}");
        }
        assert_eq!(read_line(br#"{"e":"seal","segment":1,"lines":3}"#, "gw-1"), None);
    }
}
