//! Records of one Redis server: hashes by name. Every write is a value of its own, which replicas apply later.

use std::collections::BTreeMap;
use std::rc::Rc;

use rustc_hash::FxHashMap;

/// Bytes that a server and its replica share.
pub type Bytes = Rc<[u8]>;
/// Fields of a hash, in an order that is the same in each run.
pub type Fields = BTreeMap<Bytes, Bytes>;

/// Records of one server.
#[derive(Clone, Default)]
pub struct Database {
    records: FxHashMap<Bytes, Fields>,
}

/// One write, as a server sends it to its replica.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    Set { record: Bytes, field: Bytes, value: Bytes },
    Remove { record: Bytes, field: Bytes },
    Delete { record: Bytes },
}

impl Database {
    pub fn field(&self, record: &[u8], field: &[u8]) -> Option<&Bytes> {
        self.records.get(record)?.get(field)
    }

    /// All records, in no order.
    #[allow(dead_code, reason = "the exhaustive search reads it")]
    pub fn records(&self) -> impl Iterator<Item = (&Bytes, &Fields)> {
        self.records.iter()
    }

    pub fn fields(&self, record: &[u8]) -> Option<&Fields> {
        self.records.get(record)
    }

    /// Applies a write. Returns whether it changed the number of fields.
    pub fn apply(&mut self, write: Write) -> bool {
        match write {
            Write::Set { record, field, value } => {
                self.records.entry(record).or_default().insert(field, value).is_none()
            }
            Write::Remove { record, field } => {
                let Some(fields) = self.records.get_mut(&record) else { return false };
                let removed = fields.remove(&field).is_some();
                if fields.is_empty() {
                    self.records.remove(&record);
                }
                removed
            }
            Write::Delete { record } => self.records.remove(&record).is_some(),
        }
    }
}

impl Write {
    /// Its record, field and value.
    #[allow(dead_code, reason = "the exhaustive search reads it")]
    pub fn parts(&self) -> (&Bytes, Option<&Bytes>, Option<&Bytes>) {
        match self {
            Self::Set { record, field, value } => (record, Some(field), Some(value)),
            Self::Remove { record, field } => (record, Some(field), None),
            Self::Delete { record } => (record, None, None),
        }
    }

    pub fn set(record: &[u8], field: &[u8], value: &[u8]) -> Self {
        Self::Set { record: record.into(), field: field.into(), value: value.into() }
    }
}
