//! The caller in whose name the records of a document are made, on the state itself or on that of a trial.

use crate::management::{Actor, ErrorKind, Management, ManagementError};
use domain::clock::Micros;

/// Management, the actor, and the time of the call.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    pub(super) management: &'a Management,
    pub(super) actor: &'a Actor,
    pub(super) now: Micros,
}

/// A record that was looked up; none when there is none.
pub(super) fn found<T>(shown: Result<T, ManagementError>) -> Result<Option<T>, ManagementError> {
    match shown {
        Ok(record) => Ok(Some(record)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
