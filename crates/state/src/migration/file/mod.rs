//! File of an exported state: JSON lines, the same for every variant of the state.
//!
//! ```text
//! {"format":"keygate-state","version":4,"time":"2026-11-22T17:00:00.000000Z","state":"embedded"}
//! {"org":{"id":"org_…","tag":"aB3","name":"acme",…}}
//! {"spent":{"subject":"org:org_…","org":"org_…","start":"2026-11-01T00:00:00.000000Z","units":1200}}
//! {"user":{"id":"usr_…","org":"org_…","email":"ada@example.com",…}}
//! {"rule":{"name":"deploy","org":"org_…","user":"usr_…","issuer":"https://…",…}}
//! {"key":{"id":"aB3dEf012","org":"org_…","user":"usr_…","name":"laptop",…,"sha256":"…","bucket":{…}}}
//! {"token":{"id":"Ab0Cd1Ef2G","digest":"…","name":"pipeline","scopes":["keys:read"],…}}
//! {"end":{"orgs":1,"users":1,"keys":1,"digests":1,"rules":1,"tokens":1,"spent":1,"sha256":"…"}}
//! ```
//!
//! - The first line names the format, its version, the time and the variant of the state. Everything after it is the
//!   same for the same records, whatever state they come from.
//! - The last line has the counts and the SHA-256 of all lines between: a file that was truncated, reordered,
//!   duplicated in part or changed is found before a record is imported.
//! - No id, name, address or digest is that of two records, and no record belongs to a user of another organization.
//! - A line is at most [`MAX_LINE`] bytes. Fields that are not known are errors: a record is taken whole or not at all.

mod invalid_record;
mod fields;
mod line;
mod user_line;
mod owners;
mod reader;
mod writer;

use serde::{Deserialize, Serialize};

use super::report::is_zero;
use domain::clock::{self, Micros};

pub use invalid_record::InvalidRecord;
pub(super) use line::fields;
pub use line::parse_record;
pub use reader::{FileError, Flaw, Reader, verify};
pub use writer::Writer;

/// Name of the format.
const FORMAT: &str = "keygate-state";
/// The version that this program writes. Since version 2, keys have actors; since version 3, there are federation rules
/// and management tokens; since version 4, there is what subjects of budgets have spent.
const VERSION: u64 = 4;
/// The oldest version that this program reads.
const OLDEST_VERSION: u64 = 1;
/// Bytes of a line at most. A key with a thousand former digests takes a tenth of it.
pub const MAX_LINE: usize = 1 << 20;

/// First line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Name of the format.
    format: String,
    /// Version of the format.
    version: u64,
    /// Time of the export.
    #[serde(with = "clock::rfc3339")]
    pub time: Micros,
    /// Variant of the state: `embedded` or `redis`.
    pub state: String,
}

/// Counts of the records in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct Counts {
    pub orgs: u64,
    pub users: u64,
    pub keys: u64,
    pub digests: u64,
    /// This and the next two are left out when there are none, as in every file before version 3.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rules: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spent: u64,
}

/// Content of a whole file, as its last line has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Numbers of records.
    #[serde(flatten)]
    pub counts: Counts,
    /// SHA-256 of the lines between the first and the last, in hexadecimal.
    pub sha256: String,
}

impl Counts {
    /// Number of organizations, users, keys, federation rules, management tokens and counters of budgets.
    pub fn records(&self) -> u64 {
        self.orgs + self.users + self.keys + self.rules + self.tokens + self.spent
    }
}
