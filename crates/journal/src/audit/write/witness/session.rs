//! The exchange with one witness: what it has cosigned last, and the proof from there to the newest checkpoint.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};

use super::client::{Client, ClientError};
use super::cosigned::Cosigned;
use super::outbox::{Outbox, Submission};
use crate::audit::settings::Witness;
use crate::audit::tree::nodes;
use crate::audit::write::writer::JournalWriter;
use domain::counted::counted;
use platform::tls::ClientTls;
use tlog::hash::{self, Hash};
use tlog::note::{self, Note};
use tlog::proof;
use tlog::range::LeafRange;

/// Pause between two submissions.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest pause after failures: each doubles it.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The exchange with one witness.
pub(super) struct Session {
    writer: Arc<JournalWriter>,
    witness: Witness,
    client: Client,
    cosigned: Arc<Cosigned>,
    /// The lines that the witness has cosigned, and those since; the former are none until it has said how many.
    before: LeafRange,
    since: LeafRange,
    failures: u32,
}

/// Reason why there is no cosignature.
#[derive(Debug, thiserror::Error)]
enum WitnessError {
    #[error("the witness is unavailable")]
    Unavailable(#[from] ClientError),
    #[error("the witness answers with status {0}")]
    Status(StatusCode),
    #[error("the answer of the witness has no valid cosignature of its key")]
    Signature,
    #[error(
        "the witness has cosigned {} of this tree, and not all is in the journal; lines were lost, or another gateway \
         signs with the same key",
        counted(.0, "line")
    )]
    Ahead(u64),
    #[error("the proof for the witness cannot be made")]
    Proof(#[source] io::Error),
}

impl Session {
    pub(super) fn new(writer: Arc<JournalWriter>, witness: Witness, cosigned: Arc<Cosigned>) -> io::Result<Self> {
        let open = || ClientTls::open(&witness.tls, &[]).map(Arc::new).map_err(io::Error::other);
        let tls = witness.url.is_encrypted().then(open).transpose()?;
        let client = Client::new(witness.target(), tls);
        let none = LeafRange::new(0);
        Ok(Self { writer, witness, client, cosigned, before: none.clone(), since: none, failures: 0 })
    }

    /// Submits the newest checkpoint again and again.
    pub(super) async fn run(&mut self, outbox: &Outbox) {
        let mut is_first = true;
        loop {
            let submission = outbox.take().await;
            if std::mem::take(&mut is_first) {
                // Of the lines before it, nothing is known until the witness has answered.
                self.since = submission.whole.clone();
            } else {
                self.since.extend(&submission.since);
            }
            let submitted = self.submit(&submission).await;
            self.note_result(submitted);
            tokio::time::sleep(self.pause()).await;
        }
    }

    fn pause(&self) -> Duration {
        INTERVAL.saturating_mul(1 << self.failures.min(6)).min(MAX_PAUSE)
    }

    fn note_result(&mut self, submitted: Result<(), WitnessError>) {
        let metrics = &self.writer.metrics;
        let Err(error) = submitted else {
            metrics.cosignatures_received.inc();
            if std::mem::take(&mut self.failures) > 0 {
                tracing::info!(witness = %self.witness.url.uri(), "the witness cosigns checkpoints again");
            }
            return;
        };
        metrics.cosignatures_failed.inc();
        if self.failures == 0 {
            tracing::warn!(error = &error as &dyn std::error::Error, witness = %self.witness.url.uri(),
                "no cosignature for the audit journal; trying again with later checkpoints");
        }
        self.failures += 1;
    }

    async fn submit(&mut self, submission: &Submission) -> Result<(), WitnessError> {
        let answer = self.send(submission).await?;
        if answer.status() != StatusCode::CONFLICT {
            return self.accept(submission, &answer);
        }
        // It has cosigned another size than was thought, and says which.
        let size = str::from_utf8(answer.body()).ok().and_then(|size| size.trim().parse().ok());
        self.begin_from(size.ok_or(WitnessError::Status(answer.status()))?, submission)?;
        let answer = self.send(submission).await?;
        self.accept(submission, &answer)
    }

    async fn send(&self, submission: &Submission) -> Result<Response<Bytes>, WitnessError> {
        let old = self.before.end();
        let size = submission.signed.checkpoint.size;
        let mut body = format!("old {old}\n");
        for hash in self.consistency(old, size)? {
            writeln!(body, "{}", hash::encode(&hash)).expect("a String takes every write");
        }
        write!(body, "\n{}", submission.signed.note).expect("a String takes every write");
        Ok(self.client.post(body).await?)
    }

    fn consistency(&self, old: u64, size: u64) -> Result<Vec<Hash>, WitnessError> {
        let parts = proof::consistency(old, size);
        let root = |part: &proof::Leaves| {
            let begin = part.start;
            let end = part.end;
            self.before.subtree(begin, end).or_else(|| self.since.subtree(begin, end))
        };
        let proof = parts.iter().map(root).collect::<Option<_>>();
        proof.ok_or_else(|| WitnessError::Proof(io::ErrorKind::InvalidData.into()))
    }

    /// Reads from the journal what the witness has cosigned, and what has come since.
    fn begin_from(&mut self, old: u64, submission: &Submission) -> Result<(), WitnessError> {
        let size = submission.signed.checkpoint.size;
        if old > size {
            return Err(WitnessError::Ahead(old));
        }
        let found = nodes::runs(&self.writer.settings.path, &[0..old, old..size]).map_err(WitnessError::Proof)?;
        let [before, since] = <[LeafRange; 2]>::try_from(found).expect("there is a run for each part");
        (self.before, self.since) = (before, since);
        Ok(())
    }

    /// Verifies the cosignatures of an answer, and publishes the checkpoint with them.
    fn accept(&mut self, submission: &Submission, answer: &Response<Bytes>) -> Result<(), WitnessError> {
        if answer.status() != StatusCode::OK {
            return Err(WitnessError::Status(answer.status()));
        }
        let lines = str::from_utf8(answer.body()).ok().and_then(note::parse_signatures).unwrap_or_default();
        let answered = Note { text: submission.signed.note.text.clone(), signatures: lines };
        let cosignature = answered.verified(&self.witness.public_key).cloned().ok_or(WitnessError::Signature)?;
        let verified = Note { text: answered.text, signatures: vec![cosignature] };
        let written = self.cosigned.add(&self.writer, &submission.signed, &verified);
        written.unwrap_or_else(|error| tracing::warn!(%error, "cannot write the file of the cosigned checkpoint"));
        self.before = submission.whole.clone();
        self.since = LeafRange::new(self.before.end());
        Ok(())
    }
}
