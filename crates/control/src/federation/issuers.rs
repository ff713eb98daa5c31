//! Issuers of the rules, each with its documents.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::oidc::{Error, Issuer, SubjectTokenError};
use platform::tls::ClientSettings;

/// Issuers that are kept at a time. Only rules name them, and those of an installation are a few.
const MAX_ISSUERS: usize = 256;

/// Issuers that tokens were presented of, shared by all threads.
pub(super) struct Issuers {
    tls: ClientSettings,
    known: Mutex<HashMap<String, Arc<Issuer>>>,
}

impl Issuers {
    /// None yet; `tls` has the authorities that their certificates must come from.
    pub(super) fn new(tls: ClientSettings) -> Self {
        Self { tls, known: Mutex::default() }
    }

    /// The issuer of a rule.
    ///
    /// # Errors
    /// It has no address that may be asked for its keys, or a file of certificates is unusable.
    pub(super) fn find(&self, issuer: &str) -> Result<Arc<Issuer>, SubjectTokenError> {
        if let Some(known) = self.known.lock().get(issuer) {
            return Ok(Arc::clone(known));
        }
        // Without the lock: the files of certificates are read.
        let new = Arc::new(Issuer::new(issuer, &self.tls).map_err(|error: Error| SubjectTokenError::from(error))?);
        let mut known = self.known.lock();
        if known.len() >= MAX_ISSUERS {
            // Those of rules that are gone leave with the others, whose documents are read again.
            known.clear();
        }
        Ok(Arc::clone(known.entry(issuer.to_owned()).or_insert(new)))
    }
}
