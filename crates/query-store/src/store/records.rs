//! Records of a store, as a copy from one engine to another carries them. Nothing is left out: a cursor of the source
//! is valid at the target.

/// An organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrgRecord {
    /// Its number in the source, to which the other records refer.
    pub number: i64,
    /// Its id.
    pub org: String,
    /// The version of its content.
    pub version: i64,
}

/// Columns of a row version in the tables of both engines, in the order of the fields.
pub(super) const ROW_VERSION_COLUMNS: &str =
    "org, position, version_created, version_ended, id, name, sql, created_at, updated_at, created_by";

/// A row version, current or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowVersionRecord {
    /// Number of the organization.
    pub org: i64,
    /// Position of the query.
    pub position: i64,
    /// Version that created it.
    pub version_created: i64,
    /// Version that ended it; `None` for a current one.
    pub version_ended: Option<i64>,
    /// Id of the query.
    pub id: uuid::Uuid,
    /// Name of the query.
    pub name: String,
    /// Text of the query.
    pub sql: String,
    /// Time of creation, microseconds.
    pub created_at: i64,
    /// Time of the last change, microseconds.
    pub updated_at: i64,
    /// Id of the creator.
    pub created_by: String,
}

/// A registered snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// Number of the organization.
    pub org: i64,
    /// The version that it shows.
    pub version: i64,
    /// Its expiry, microseconds.
    pub expires_at: i64,
}

/// Numbers and sums by which source and target of a copy are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreTotals {
    /// Organizations.
    pub orgs: i64,
    /// Sum of their versions.
    pub versions: i64,
    /// Current row versions.
    pub current: i64,
    /// Ended row versions.
    pub ended: i64,
    /// Bytes of all names and texts.
    pub bytes: i64,
    /// Registered snapshots.
    pub snapshots: i64,
}
