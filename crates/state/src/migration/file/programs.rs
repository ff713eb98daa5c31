//! Lines of programs: federation rules and management tokens, in the form of their records.

use super::invalid_record::InvalidRecord;
use super::line::check_name;
use crate::{ActorName, FederationRule};
use domain::management_token::ManagementToken;
use domain::names;

/// Checks a rule, as its creation does.
pub(super) fn check_rule(rule: &FederationRule) -> Result<(), InvalidRecord> {
    Ok(rule.validate()?)
}

/// Checks a token, as its creation does.
pub(super) fn check_token(token: &ManagementToken) -> Result<(), InvalidRecord> {
    check_name(&token.name, names::validate_name(&token.name))?;
    token.validate()?;
    if token.admin.is_some() && token.org.is_none() {
        return Err(InvalidRecord::AdminWithoutOrg);
    }
    let creator = ActorName::new(token.created_by.as_str());
    if creator.is_valid() { Ok(()) } else { Err(InvalidRecord::Creator(token.created_by.clone())) }
}
