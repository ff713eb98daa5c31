//! The authenticated caller of a request, and the fields that tell the upstream who it is.

use http::HeaderValue;

use super::{AuthMethod, OrgId, Permission, UserId, X_ORG_ID, X_PERMISSIONS, X_USER_ID};
use crate::field_lines::{FieldLines, LINE_END, SEPARATOR};
use crate::key::KeyId;

/// Bytes of an id of a user or an organization.
const ID: usize = 36;
/// Places of the values in the lines, of which only the last one has no fixed length.
const USER: usize = "x-user-id".len() + SEPARATOR.len();
const ORG: usize = USER + ID + LINE_END.len() + "x-org-id".len() + SEPARATOR.len();
const PERMISSIONS: usize = ORG + ID + LINE_END.len() + "x-permissions".len() + SEPARATOR.len();

/// The authenticated caller of a request. Its identity fields are made when the record changes, not for each request.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The key that was used; none for a session.
    pub key_id: Option<KeyId>,
    /// The user.
    pub user_id: UserId,
    /// The organization.
    pub org_id: OrgId,
    /// Method of authentication.
    pub method: AuthMethod,
    /// Its identity fields.
    pub headers: PrincipalHeaders,
}

/// The identity fields of a [`Principal`], as lines of a head, without its key: all keys of a user share them.
#[derive(Clone, Debug)]
pub struct PrincipalHeaders {
    lines: FieldLines,
}

impl PrincipalHeaders {
    /// Makes the lines for a user with these permissions, which must be sorted.
    pub fn new(user: UserId, org: OrgId, permissions: &[Permission]) -> Self {
        let permissions: Vec<&str> = permissions.iter().map(Permission::as_str).collect();
        let lines = FieldLines::of(|lines| {
            lines.push(&X_USER_ID, user.to_string().as_bytes());
            lines.push(&X_ORG_ID, org.to_string().as_bytes());
            lines.push(&X_PERMISSIONS, permissions.join(",").as_bytes());
        });
        Self { lines }
    }

    /// Lines of `X-User-Id`, `X-Org-Id` and `X-Permissions`.
    pub fn lines(&self) -> &FieldLines {
        &self.lines
    }

    /// Value of `X-User-Id`.
    pub fn user_id(&self) -> HeaderValue {
        self.lines.value_at(USER..USER + ID)
    }

    /// Value of `X-Org-Id`.
    pub fn org_id(&self) -> HeaderValue {
        self.lines.value_at(ORG..ORG + ID)
    }

    /// Value of `X-Permissions`: sorted, with commas between them; empty when there are none.
    pub fn permissions(&self) -> HeaderValue {
        self.lines.value_at(PERMISSIONS..self.lines.as_bytes().len() - LINE_END.len())
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn values_are_those_of_the_lines() {
        let (user, org) = (UserId::generate(), OrgId::generate());
        for permissions in [&[][..], &["a:read".parse().unwrap(), "b:write".parse().unwrap()]] {
            let headers = PrincipalHeaders::new(user, org, permissions);
            let values = [headers.user_id(), headers.org_id(), headers.permissions()];
            let names = [X_USER_ID, X_ORG_ID, X_PERMISSIONS];
            let fields = names.iter().map(HeaderName::as_str).zip(values.clone());
            assert!(headers.lines().fields().eq(fields));
            assert_eq!(values[0], user.to_string());
        }
    }
}
