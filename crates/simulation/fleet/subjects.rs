//! Subjects of slots: organizations, and keys with a limit of requests in flight of their own.

use std::sync::Arc;

use state::redis::{SlotLease, SlotSubject};

use super::directory::Directory;
use super::gateway::Gateway;

/// An organization or a key, by its number in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    Org(usize),
    Key(usize),
}

impl Directory {
    /// The subjects of which a request with a key holds a slot.
    pub fn subjects_of_key(&self, key: usize) -> impl Iterator<Item = Subject> + use<> {
        let own = self.keys[key].concurrent.map(|_| Subject::Key(key));
        [Some(Subject::Org(self.keys[key].org)), own].into_iter().flatten()
    }

    /// The subject of a lease.
    pub fn subject(&self, of_lease: SlotSubject) -> Subject {
        match of_lease {
            SlotSubject::Org(tag) => Subject::Org(self.org_of(tag)),
            SlotSubject::Key(id) => Subject::Key(self.key_of(id)),
        }
    }

    /// The organization of a subject.
    pub fn org_of_subject(&self, subject: Subject) -> usize {
        match subject {
            Subject::Org(org) => org,
            Subject::Key(key) => self.keys[key].org,
        }
    }

    pub fn shard_of_subject(&self, subject: Subject) -> usize {
        self.orgs[self.org_of_subject(subject)].shard
    }

    /// The limit of requests in flight.
    pub fn slot_limit(&self, subject: Subject) -> usize {
        let limit = match subject {
            Subject::Org(org) => self.orgs[org].limit,
            Subject::Key(key) => self.keys[key].concurrent.unwrap(),
        };
        limit as usize
    }

    /// The record with the leases.
    pub fn slot_record(&self, subject: Subject) -> &[u8] {
        match subject {
            Subject::Org(org) => &self.orgs[org].record,
            Subject::Key(key) => &self.keys[key].slots_record,
        }
    }

    /// All subjects whose records a shard has.
    pub fn subjects_on(&self, shard: usize) -> Vec<Subject> {
        let orgs = (0..self.orgs.len()).map(Subject::Org);
        let keys = (0..self.keys.len()).filter(|key| self.keys[*key].concurrent.is_some()).map(Subject::Key);
        orgs.chain(keys).filter(|subject| self.shard_of_subject(*subject) == shard).collect()
    }
}

impl Gateway {
    /// The lease on the slots of a subject.
    pub fn lease_of(&self, directory: &Directory, subject: Subject) -> Arc<SlotLease> {
        match subject {
            Subject::Org(org) => self.decisions.slots.lease_of(directory.orgs[org].tag),
            Subject::Key(key) => self.decisions.slots.key_lease_of(directory.keys[key].id),
        }
    }
}
