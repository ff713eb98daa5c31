//! Changes by a person: their two writes, by the product's own steps.

use std::ops::ControlFlow;
use std::time::Duration;

use redis_client::CommandError;
use state::redis::{ChangeSteps, ChangeWrite, Durability};

use crate::directory::Withdrawal;
use crate::messages::{Call, Pending};
use crate::mutants::Fault;
use crate::requests::name;
use crate::world::{World, instant};

const DURABILITY: Durability = Durability { replicas: 0, timeout: Duration::from_secs(1) };

/// A change that is being made.
pub struct Change {
    pub withdrawal: Withdrawal,
    pub gateway: usize,
    steps: ChangeSteps,
    /// Writes that were made in this attempt.
    pub writes: usize,
    /// It was acknowledged, or its gateway has died.
    pub is_over: bool,
}

impl Change {
    pub fn abandon(&mut self) {
        self.is_over = true;
    }

    /// All that its next step depends on.
    pub fn text(&self) -> String {
        format!("{:?} {} {}", self.withdrawal, self.writes, self.is_over)
    }
}

impl World {
    pub fn is_begun(&self, withdrawal: Withdrawal) -> bool {
        self.changes.iter().any(|change| change.withdrawal == withdrawal)
    }

    /// A person begins a change at a gateway.
    pub fn begin_change(&mut self, gateway: usize, withdrawal: Withdrawal) {
        let steps = ChangeSteps::begin(DURABILITY, instant(self.now));
        self.changes.push(Change { withdrawal, gateway, steps, writes: 0, is_over: false });
        self.send_change(self.changes.len() - 1);
    }

    fn send_change(&mut self, number: usize) {
        let Change { withdrawal, gateway, writes, .. } = self.changes[number];
        let call = match ChangeWrite::ORDER[writes] {
            ChangeWrite::Records => Call::Change(withdrawal),
            ChangeWrite::Log => Call::Append(withdrawal),
        };
        if self.send(gateway, call, Pending::Change(number)).is_err() {
            self.complete_change(number, Err(CommandError::Unreachable));
        }
    }

    /// A write was made, or has failed.
    pub fn complete_change(&mut self, number: usize, result: Result<(), CommandError>) {
        let Change { withdrawal, gateway, writes, is_over, .. } = self.changes[number];
        if is_over {
            return;
        }
        if result.is_ok() {
            // A final one is kept once its records have it, any other one once it is numbered in the log.
            let keeps_at = usize::from(withdrawal == Withdrawal::Disabling);
            if writes == keeps_at && self.fault != Fault::NoKeeping {
                let revocation = self.directory.revocation(withdrawal);
                revocation.into_iter().for_each(|revocation| self.gateways[gateway].kept.add(revocation));
            }
            self.changes[number].writes += 1;
            if writes + 1 < ChangeWrite::ORDER.len() {
                return self.send_change(number);
            }
        }
        let result = result.map(|()| 0).map_err(Into::into);
        let ended = self.changes[number].steps.after_attempt(result, DURABILITY, instant(self.now));
        // A change that has failed is not made again here: its person does not know if it was made.
        self.changes[number].is_over = true;
        if let ControlFlow::Break(Ok(())) = ended {
            self.gateways[gateway].decisions.end_verdicts();
            self.tell(|| format!("{}: {withdrawal:?} is acknowledged", name(gateway)));
            self.oracle_acknowledge(number);
        }
    }
}
