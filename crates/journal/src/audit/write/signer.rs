//! The key that signs checkpoints, and the witnesses that cosign them, as the settings name them.

use std::fs;

use zeroize::Zeroizing;

use crate::audit::error::OpenError;
use crate::audit::settings::{Checkpoints, Settings, Witness};
use crate::audit::tree::key::SigningKey;

/// The key of checkpoints, and their witnesses.
#[derive(Debug)]
pub(crate) struct CheckpointSigner {
    pub(crate) key: SigningKey,
    pub(crate) witnesses: Vec<Witness>,
}

/// Reads the key of the settings.
pub(crate) fn load(settings: &Settings) -> Result<Option<CheckpointSigner>, OpenError> {
    let Some(Checkpoints { key_file: path, origin, witnesses }) = &settings.checkpoints else { return Ok(None) };
    let path = path.clone();
    let text = match fs::read_to_string(&path) {
        Ok(text) => Zeroizing::new(text),
        Err(source) => return Err(OpenError::Io { path, source }),
    };
    let key: SigningKey = match text.parse() {
        Ok(key) => key,
        Err(source) => return Err(OpenError::Key { path, source }),
    };
    if origin.as_ref().is_some_and(|origin| origin != key.public().name()) {
        return Err(OpenError::Origin { path, name: key.public().name().to_owned() });
    }
    Ok(Some(CheckpointSigner { key, witnesses: witnesses.clone() }))
}
