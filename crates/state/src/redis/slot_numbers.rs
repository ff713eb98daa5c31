//! Hash slots of records that are known without their names.

use domain::key::OrgTag;
use redis_client::hash_slot;

/// The hash slot of all records of an organization.
pub fn org_slot(tag: OrgTag) -> u16 {
    hash_slot(tag.as_str())
}

/// The hash slot of the list of organizations.
pub fn orgs_slot() -> u16 {
    hash_slot("orgs")
}

/// The hash slot of the gateways.
pub fn gateways_slot() -> u16 {
    hash_slot("gateways")
}

/// The hash slot of the revocation log.
pub fn revocations_slot() -> u16 {
    hash_slot("revocations")
}
