//! Commits of the writer thread: waiting operations in one transaction, each of them whole or not at all.

use rusqlite::{Connection, TransactionBehavior};

use super::directory::Directory;
use super::file_reserve::Demand;
use super::imports;
use super::operation::{Operation, Request, Written, unavailable};
use super::sql::classify_error;
use super::writer::WriterThread;
use super::{changes, identity_rows, tickets, usage_blocks};
use crate::ChangeError;

impl WriterThread {
    /// Commits the operations, then makes them effective in memory, then answers.
    pub(super) fn commit(&mut self, mut requests: Vec<Request>) {
        self.watched.refuse(&mut requests);
        if requests.is_empty() {
            return;
        }
        if requests.iter().any(|request| request.operation.adds() || request.operation.has_record())
            && let Err(error) = self.reserve.check(&self.connection, Demand::Addition)
        {
            // On a full disk, what adds records is refused, so that there is space for what withdraws something.
            for Request { reply, .. } in requests.extract_if(.., |request| request.operation.adds()) {
                let _ = reply.send(Err(unavailable(&error)));
            }
            if requests.is_empty() {
                return;
            }
            requests = requests.into_iter().map(Request::without_record).collect();
        }
        let results = match self.write(&requests) {
            Ok(results) => results,
            // Together they may need more space than there is, and each by itself less.
            Err(_) if requests.len() > 1 => requests.iter().map(|request| self.write_one(request)).collect(),
            Err(error) => requests.iter().map(|_| Err(unavailable(&error))).collect(),
        };
        self.answer(requests, results);
    }

    /// Makes committed operations effective in memory, then answers all.
    fn answer(&mut self, requests: Vec<Request>, results: Vec<Result<Written, ChangeError>>) {
        let mut imported = Vec::new();
        for (Request { operation, reply }, result) in requests.into_iter().zip(results) {
            let is_import = operation.is_import();
            let result = match result {
                Ok(written) => Ok(self.make_effective(operation, written)),
                Err(error) => {
                    self.directory.undo(&operation);
                    Err(error)
                }
            };
            if is_import {
                imported.push((reply, result));
            } else {
                // An error says that the caller has gone; the change is made all the same.
                let _ = reply.send(result);
            }
        }
        // All at once: each by itself would wake the importer, which waits for the last one.
        for (reply, result) in imported {
            let _ = reply.send(result);
        }
    }

    /// Makes a committed operation effective in memory. Returns the content of a ticket that was taken.
    fn make_effective(&mut self, operation: Operation, written: Written) -> Option<Vec<u8>> {
        match (operation, written) {
            (Operation::Change(change), Written::Change(planned)) => self.directory.apply_and_log(change, planned),
            (Operation::Import(import), _) => self.directory.apply_import(import),
            (Operation::Accept(identity), _) => self.watched.set(identity),
            (Operation::TakeTicket(..), Written::Ticket(content)) => return content,
            (Operation::Change(_) | Operation::TakeTicket(..), _) => {}
        }
        None
    }

    fn write_one(&mut self, request: &Request) -> Result<Written, ChangeError> {
        let results = self.write(std::slice::from_ref(request));
        results.map_err(|error| unavailable(&error))?.pop().unwrap_or(Err(ChangeError::Closed))
    }

    /// Writes the operations in one transaction, each of them whole or not at all.
    ///
    /// # Errors
    /// The whole transaction failed; none was written.
    fn write(&mut self, requests: &[Request]) -> rusqlite::Result<Vec<Result<Written, ChangeError>>> {
        let imports = requests.iter().filter(|request| request.operation.is_import()).count();
        // A savepoint costs as much as the record, and an import seldom fails: many are written without.
        if imports > 1
            && let Some(results) = self.write_with(requests, Savepoints::Changes)?
        {
            return Ok(results);
        }
        let results = self.write_with(requests, Savepoints::All)?;
        Ok(results.expect("an operation with a savepoint leaves the transaction whole"))
    }

    /// Writes the operations in one transaction. Returns none, and nothing is written, when one without a savepoint
    /// failed.
    fn write_with(
        &mut self,
        requests: &[Request],
        savepoints: Savepoints,
    ) -> rusqlite::Result<Option<Vec<Result<Written, ChangeError>>>> {
        let mut transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut results = Vec::with_capacity(requests.len());
        let mut used = Vec::new();
        for request in requests {
            if let (Savepoints::Changes, Operation::Import(import)) = (savepoints, &request.operation) {
                match imports::write(&transaction, import, &self.directory) {
                    Ok(usage) => used.extend(usage),
                    Err(_) => return Ok(None),
                }
                results.push(Ok(Written::AsGiven));
                continue;
            }
            // A savepoint: an operation that fails halfway must not undo the ones before it.
            let savepoint = transaction.savepoint()?;
            let result = write_operation(&savepoint, &request.operation, &self.directory);
            // Either fails when the error has undone the whole transaction, as a full disk does.
            if result.is_ok() {
                savepoint.commit()?
            } else {
                savepoint.finish()?
            }
            results.push(result);
        }
        // At the end, since rows that follow each other share a block.
        usage_blocks::write_blocks(&transaction, &mut used)?;
        let made = requests.iter().zip(&results).filter(|(_, result)| result.is_ok());
        let identity = self.watched.count(&transaction, made.map(|(request, _)| &request.operation))?;
        transaction.commit()?;
        self.watched.set(identity);
        Ok(Some(results))
    }
}

/// The operations that have a savepoint of their own.
#[derive(Clone, Copy)]
enum Savepoints {
    /// All but imports: one that fails undoes the transaction.
    Changes,
    All,
}

/// Checks an operation and writes it. After an error the caller rolls the savepoint back.
fn write_operation(sql: &Connection, operation: &Operation, directory: &Directory) -> Result<Written, ChangeError> {
    match operation {
        Operation::Change(change) => {
            directory.prepare(change)?;
            changes::write(sql, change, &directory.bounds()).map(Written::Change)
        }
        Operation::TakeTicket(digest, now) => tickets::take(sql, digest, *now).map(Written::Ticket),
        Operation::Accept(identity) => {
            identity_rows::write(sql, identity).map(|()| Written::AsGiven).map_err(classify_error)
        }
        Operation::Import(import) => {
            let mut used: Vec<_> = imports::write(sql, import, directory)?.into_iter().collect();
            usage_blocks::write_blocks(sql, &mut used).map(|()| Written::AsGiven).map_err(classify_error)
        }
    }
}
