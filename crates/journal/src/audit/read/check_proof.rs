//! Check of a proof by those who have no journal: the file that `prove` wrote, and the public key.
//!
//! - A record is proven when each of its lines leads, by its hashes, to the root of a checkpoint that the key signed.
//! - Nothing of the file is believed that is not covered so: what a proof says besides its lines is not read.
//! - A file that was cut between the proofs of two lines is whole in itself: its record has no end then, and is
//!   `in_progress`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::prove::{HEADER, LineProof, RecordProof};
use crate::audit::format::event::{OutcomeEvent, UseEvent};
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::record::Record;
use crate::audit::format::{decode, frame};
use tlog::checkpoint::SignedCheckpoint;
use tlog::hash::{self, Hash};
use tlog::key::PublicKey;
use tlog::proof;

/// A record whose lines are in the tree of a checkpoint that the key has signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProvenRecord {
    /// Name of the tree.
    pub origin: String,
    /// Lines that the checkpoint covers.
    pub size: u64,
    /// Numbers of the record's lines in the tree, from 0.
    pub lines: Vec<u64>,
    /// The record; `in_progress` when the proof has no line of its end. Lines do not have the name of their gateway:
    /// its place has that of the tree.
    pub record: Record,
}

/// Reason why a file proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProof {
    /// The text is something else.
    #[error("this is no proof as `keygate audit prove` writes it")]
    Unreadable,
    /// A part is missing at the end, or is not in the form of a proof.
    #[error("the proof of line {0} of the record is incomplete: the file was truncated or changed")]
    Incomplete(usize),
    /// The key is that of another journal.
    #[error("the proof is of the journal {proof}, and the key is of {key}")]
    OtherTree {
        /// Name of the tree in the checkpoint.
        proof: String,
        /// Name of the key.
        key: String,
    },
    /// The signature of the checkpoint is not the key's.
    #[error("the checkpoint is not signed by this key: the key is another one, or the checkpoint was changed")]
    NotSigned,
    /// The checksum of a line is wrong.
    #[error("line {0} of the journal was changed: its checksum does not match")]
    ChangedLine(u64),
    /// A line and its hashes do not lead to the root.
    #[error("line {0} of the journal, or a hash of its proof, was changed: they do not lead to the checkpoint")]
    NotIncluded(u64),
    /// A line is of a segment, or the line that begins the record is missing.
    #[error("the lines are those of no record, or the one with its beginning is missing")]
    NoRecord,
    /// Lines of two records, a line that comes twice, or two checkpoints.
    #[error("the proofs are not all of one record and one checkpoint")]
    Mixed,
}

/// A line with its way to the root.
#[derive(Debug)]
struct ProofOfLine {
    index: u64,
    line: Vec<u8>,
    hashes: Vec<Hash>,
    checkpoint: SignedCheckpoint,
}

impl ProvenRecord {
    /// Checks a proof as `prove` wrote it, as text or as JSON, by the key of its journal.
    ///
    /// # Errors
    /// [`InvalidProof`] says what is wrong with it.
    pub fn check(text: &str, key: &PublicKey) -> Result<Self, InvalidProof> {
        let proofs = if text.starts_with('{') { parse_json(text)? } else { parse_text(text)? };
        let first = proofs.first().ok_or(InvalidProof::Unreadable)?;
        proofs.iter().try_for_each(|proof| proof.check(key))?;
        let is_one = proofs.windows(2).all(|pair| pair[0].index < pair[1].index && pair[0].is_beside(&pair[1]));
        if !is_one {
            return Err(InvalidProof::Mixed);
        }
        let checkpoint = &first.checkpoint.checkpoint;
        Ok(Self {
            record: join(&proofs, &checkpoint.origin).ok_or(InvalidProof::NoRecord)?,
            origin: checkpoint.origin.clone(),
            size: checkpoint.size,
            lines: proofs.iter().map(|proof| proof.index).collect(),
        })
    }
}

impl ProofOfLine {
    /// Reads a tlog-proof behind its first line.
    fn parse(text: &str) -> Option<Self> {
        let (head, note) = text.split_once("\n\n")?;
        let mut fields = head.lines();
        let line = STANDARD.decode(fields.next()?.strip_prefix("extra ")?).ok()?;
        let index = fields.next()?.strip_prefix("index ")?.parse().ok()?;
        let hashes = fields.map(hash::decode).collect::<Option<_>>()?;
        // An empty line separates the note from the next proof.
        let checkpoint = SignedCheckpoint::parse(note.strip_suffix("\n\n").map_or(note, |_| &note[..note.len() - 1]))?;
        Some(Self { index, line, hashes, checkpoint })
    }

    fn check(&self, key: &PublicKey) -> Result<(), InvalidProof> {
        let Self { index, line, hashes, checkpoint: SignedCheckpoint { checkpoint, note } } = self;
        if checkpoint.origin != key.name() {
            return Err(InvalidProof::OtherTree { proof: checkpoint.origin.clone(), key: key.name().to_owned() });
        }
        note.verified(key).ok_or(InvalidProof::NotSigned)?;
        frame::verify_line(line).ok_or(InvalidProof::ChangedLine(*index))?;
        let is_included = proof::verify_inclusion(hash::leaf(line), *index, checkpoint.size, hashes, &checkpoint.root);
        if is_included { Ok(()) } else { Err(InvalidProof::NotIncluded(*index)) }
    }

    /// Returns whether another line is of the same record, by the same checkpoint.
    fn is_beside(&self, other: &Self) -> bool {
        self.checkpoint.checkpoint == other.checkpoint.checkpoint
            && line::event_id(&self.line) == line::event_id(&other.line)
    }
}

fn parse_text(text: &str) -> Result<Vec<ProofOfLine>, InvalidProof> {
    let mut proofs = text.split(HEADER);
    // Before the first one is nothing.
    if proofs.next() != Some("") {
        return Err(InvalidProof::Unreadable);
    }
    proofs
        .enumerate()
        .map(|(number, text)| ProofOfLine::parse(text).ok_or(InvalidProof::Incomplete(number + 1)))
        .collect()
}

fn parse_json(text: &str) -> Result<Vec<ProofOfLine>, InvalidProof> {
    let RecordProof { id, lines, checkpoint, .. } = serde_json::from_str(text)
        .map_err(|error| if error.is_eof() { InvalidProof::Incomplete(1) } else { InvalidProof::Unreadable })?;
    let checkpoint = SignedCheckpoint::parse(&checkpoint).ok_or(InvalidProof::Incomplete(1))?;
    let mut proofs = Vec::new();
    for (number, LineProof { index, line, hashes, .. }) in lines.into_iter().enumerate() {
        let hashes: Option<_> = hashes.iter().map(|hash| hash::decode(hash)).collect();
        let hashes = hashes.ok_or(InvalidProof::Incomplete(number + 1))?;
        let line = line.into_bytes();
        if line::event_id(&line) != Some(id.as_u128()) {
            return Err(InvalidProof::Mixed);
        }
        proofs.push(ProofOfLine { index, line, hashes, checkpoint: checkpoint.clone() });
    }
    Ok(proofs)
}

/// Joins the lines of a record, which have one id; `None` when one is of no record, or none begins it.
fn join(proofs: &[ProofOfLine], gateway: &str) -> Option<Record> {
    let mut begun: Option<UseEvent<'_>> = None;
    let mut ended: Option<OutcomeEvent> = None;
    for ProofOfLine { line, .. } in proofs {
        match line::event_kind(line)? {
            EventKind::Use | EventKind::Record | EventKind::Carried => {
                let event = decode::use_event(line)?;
                begun.get_or_insert(event);
            }
            EventKind::Outcome => {
                let event = decode::outcome_event(line)?;
                ended.get_or_insert(event);
            }
            EventKind::Header | EventKind::Seal | EventKind::Expired | EventKind::Damaged => return None,
        }
    }
    begun.map(|begun| begun.into_record(ended.as_ref(), gateway))
}
