//! Operands: validates names, addresses and permissions, and looks up the organizations and users that references name.

use super::{Management, ManagementError};
use crate::identity::{OrgId, Permission, UserId};
use crate::state;

/// Characters of a name.
const MAX_NAME: usize = 100;
/// Bytes of an email address (RFC 5321 section 4.5.3.1.3, without the brackets).
const MAX_EMAIL: usize = 254;
/// Keys of one operation at most: more than a page of them.
const MAX_KEYS: usize = 200;

impl Management {
    /// Looks up the organization with this id or name.
    pub(super) async fn find_org(&self, reference: &str) -> Result<state::Org, ManagementError> {
        let org = match reference.parse::<OrgId>() {
            Ok(id) => self.state.org(id).await?,
            Err(_) => self.state.org_by_name(reference).await?,
        };
        org.ok_or_else(|| ManagementError::NoOrg(reference.to_owned()))
    }

    /// Looks up the user with this id or email address; a removed user is reported as absent.
    pub(super) async fn find_user(&self, org: OrgId, reference: &str) -> Result<state::User, ManagementError> {
        let user = match reference.parse::<UserId>() {
            Ok(id) => self.state.member(org, id).await?.map(|(_, user)| user),
            Err(_) => self.state.user_by_email(org, &reference.to_lowercase()).await?,
        };
        let user = user.filter(|user| user.removed.is_none());
        user.ok_or_else(|| ManagementError::NoUser(reference.to_owned()))
    }
}

/// Validates a name: one that fits into one line of a table.
pub(super) fn validate_name(text: &str) -> Result<String, ManagementError> {
    let length = text.chars().count();
    // Control characters could move the cursor of the terminal in which `keygate key list` shows the name.
    let plain = text.trim() == text && !text.chars().any(char::is_control);
    if (1..=MAX_NAME).contains(&length) && plain { Ok(text.to_owned()) } else { Err(ManagementError::InvalidName) }
}

/// Validates the name of an organization: references are ids or names, so a name must not look like an id.
pub(super) fn validate_org_name(text: &str) -> Result<String, ManagementError> {
    if text.parse::<OrgId>().is_ok() { Err(ManagementError::NameLikeId) } else { validate_name(text) }
}

/// Validates an email address and returns it in lower case, so that one address is one user however it is written.
pub(super) fn validate_email(text: &str) -> Result<String, ManagementError> {
    let valid = text.split_once('@').is_some_and(|(local, domain)| {
        let visible = |c: char| !c.is_whitespace() && !c.is_control() && !",;<>\"".contains(c);
        let host = |c: char| c.is_alphanumeric() || c == '.' || c == '-';
        let edges = domain.starts_with(['.', '-']) || domain.ends_with(['.', '-']) || domain.contains("..");
        (1..=64).contains(&local.len()) && local.chars().all(visible) && domain.chars().all(host) && !edges
    });
    let domain = text.rsplit('@').next().unwrap_or_default();
    // An identity provider vouches for the address as it is written; lower case must not make it another user's address.
    let valid = valid && !text.chars().any(becomes_ascii);
    if valid && !domain.is_empty() && text.len() <= MAX_EMAIL {
        Ok(text.to_lowercase())
    } else {
        Err(ManagementError::InvalidEmail(text.escape_default().take(MAX_EMAIL).collect()))
    }
}

/// Returns whether the lower case of a letter beyond ASCII is an ASCII letter, as with the Kelvin sign (U+212A) and `k`.
fn becomes_ascii(letter: char) -> bool {
    !letter.is_ascii() && letter.to_lowercase().any(|lower| lower.is_ascii())
}

/// Sorts permissions and removes duplicates.
pub(super) fn normalize_permissions(mut permissions: Vec<Permission>) -> Vec<Permission> {
    permissions.sort_unstable();
    permissions.dedup();
    permissions
}

/// Checks that these keys are few enough for one operation.
pub(super) fn check_key_count<T>(keys: &[T]) -> Result<(), ManagementError> {
    if keys.len() > MAX_KEYS { Err(ManagementError::TooManyKeyIds) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_into_a_line() {
        assert_eq!(validate_name("Ada's laptop").unwrap(), "Ada's laptop");
        assert!(validate_name(&"ä".repeat(100)).is_ok());
        for bad in ["", " a", "a ", "a\nb", "a\u{1b}[2J", &"a".repeat(101)] {
            assert!(validate_name(bad).is_err(), "{bad:?}");
        }
        assert!(validate_org_name(&OrgId::generate().to_string()).is_err());
    }

    #[test]
    fn emails_are_validated_and_in_lower_case() {
        assert_eq!(validate_email("Ada@Example.com").unwrap(), "ada@example.com");
        assert!(validate_email("a.b+c@sub-domain.example").is_ok());
        for bad in ["", "ada", "@example.com", "ada@", "a b@c", "a@b@c", "a@b..c", "a@.b", "a\n@b", "<a>@b", "a@b\n"] {
            assert!(validate_email(bad).is_err(), "{bad:?}");
        }
        assert!(validate_email(&format!("{}@b", "a".repeat(65))).is_err());
        assert_eq!(validate_email("Ärger@example.com").unwrap(), "ärger@example.com");
    }

    #[test]
    fn emails_never_become_those_of_others() {
        for like in ["mar\u{212a}@example.com", "ada@lin\u{212a}.example", "\u{130}da@example.com"] {
            assert!(validate_email(like).is_err(), "{like}: {}", like.to_lowercase());
        }
    }
}
