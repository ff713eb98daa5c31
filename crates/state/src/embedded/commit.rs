//! Commits of the writer thread: waiting operations in one transaction, each of them whole or not at all.

use rusqlite::TransactionBehavior;

use super::file_reserve::Demand;
use super::imports;
use super::operation::{Operation, Reply, Request, unavailable};
use super::writer::WriterThread;
use super::{changes, tickets};
use crate::ChangeError;

impl WriterThread {
    /// Commits the operations, then makes them effective in memory, then answers.
    pub(super) fn commit(&mut self, mut requests: Vec<Request>) {
        if requests.iter().any(|request| request.operation.adds())
            && let Err(error) = self.reserve.check(&self.connection, Demand::Addition)
        {
            // On a full disk, what adds records is refused, so that there is space for what withdraws something.
            for Request { reply, .. } in requests.extract_if(.., |request| request.operation.adds()) {
                let _ = reply.send(Err(unavailable(&error)));
            }
            if requests.is_empty() {
                return;
            }
        }
        let results = match self.write(&requests) {
            Ok(results) => results,
            // Together they may need more space than there is, and each by itself less.
            Err(_) if requests.len() > 1 => requests.iter().map(|request| self.write_one(request)).collect(),
            Err(error) => requests.iter().map(|_| Err(unavailable(&error))).collect(),
        };
        for (Request { operation, reply }, result) in requests.into_iter().zip(results) {
            if result.is_ok() {
                self.make_effective(operation);
            } else {
                self.directory.undo(&operation);
            }
            // An error says that the caller has gone; the change is made all the same.
            let _ = reply.send(result);
        }
    }

    /// Makes a committed operation effective in memory.
    fn make_effective(&self, operation: Operation) {
        match operation {
            Operation::Change(change) => self.directory.apply_and_log(change),
            Operation::Import(import) => self.directory.apply_import(import),
            Operation::TakeTicket(..) => {}
        }
    }

    fn write_one(&mut self, request: &Request) -> Reply {
        let results = self.write(std::slice::from_ref(request));
        results.map_err(|error| unavailable(&error))?.pop().unwrap_or(Err(ChangeError::Closed))
    }

    /// Writes the operations in one transaction, each of them whole or not at all.
    ///
    /// # Errors
    /// The whole transaction failed; none was written.
    fn write(&mut self, requests: &[Request]) -> rusqlite::Result<Vec<Reply>> {
        let mut transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut results = Vec::with_capacity(requests.len());
        let bounds = self.directory.bounds();
        for request in requests {
            // A savepoint for each: an operation that fails halfway must not undo the ones before it.
            let savepoint = transaction.savepoint()?;
            let result = match &request.operation {
                Operation::Change(change) => {
                    let prepared = self.directory.prepare(change);
                    prepared.and_then(|()| changes::write(&savepoint, change, &bounds)).map(|()| None)
                }
                Operation::TakeTicket(digest, now) => tickets::take(&savepoint, digest, *now),
                Operation::Import(import) => imports::write(&savepoint, import, &self.directory).map(|()| None),
            };
            // Either fails when the error has undone the whole transaction, as a full disk does.
            if result.is_ok() {
                savepoint.commit()?
            } else {
                savepoint.finish()?
            }
            results.push(result);
        }
        transaction.commit()?;
        Ok(results)
    }
}
