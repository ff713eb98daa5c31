//! The key that signs checkpoints, and the witnesses that cosign them, as the settings name them.
//!
//! A gateway that cannot read its key does not start, unless its journal has a signed checkpoint already: then the key
//! worked once, and traffic is worth more than checkpoints, which go on when the file can be read again.

use std::fs;

use zeroize::Zeroizing;

use crate::audit::error::OpenError;
use crate::audit::settings::{Checkpoints, Settings};
use crate::audit::tree::published;
use tlog::key::SigningKey;

/// The key of checkpoints, and their settings.
#[derive(Debug)]
pub(crate) struct CheckpointSigner {
    /// None when the file could not be read at the start.
    pub(crate) key: Option<SigningKey>,
    pub(crate) settings: Checkpoints,
}

/// Reads the key of the settings.
pub(crate) fn load(settings: &Settings) -> Result<Option<CheckpointSigner>, OpenError> {
    let Some(checkpoints) = &settings.checkpoints else { return Ok(None) };
    let key = match read_key(checkpoints) {
        Ok(key) => Some(key),
        Err(error) if published::exists(&settings.path) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "cannot read the key that signs checkpoints of the audit journal; serving without new checkpoints, and \
                 trying again; make the file readable for the user of the gateway"
            );
            None
        }
        Err(error) => return Err(error),
    };
    Ok(Some(CheckpointSigner { key, settings: checkpoints.clone() }))
}

/// Checks that the configured key can be read, and has the configured name.
///
/// # Errors
/// [`OpenError`]: what is wrong with it.
pub fn check_signing_key(settings: &Settings) -> Result<(), OpenError> {
    settings.checkpoints.as_ref().map_or(Ok(()), |checkpoints| read_key(checkpoints).map(drop))
}

/// Reads the private key.
pub(crate) fn read_key(checkpoints: &Checkpoints) -> Result<SigningKey, OpenError> {
    let path = checkpoints.key_file.clone();
    let text = match fs::read_to_string(&path) {
        Ok(text) => Zeroizing::new(text),
        Err(source) => return Err(OpenError::Io { path, source }),
    };
    let key: SigningKey = match text.parse() {
        Ok(key) => key,
        Err(source) => return Err(OpenError::Key { path, source }),
    };
    if checkpoints.origin.as_ref().is_some_and(|origin| origin != key.public().name()) {
        return Err(OpenError::Origin { path, name: key.public().name().to_owned() });
    }
    Ok(key)
}
