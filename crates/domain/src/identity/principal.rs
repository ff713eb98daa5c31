//! The authenticated caller of a request, and the fields that tell the upstream who it is.

use http::{HeaderName, HeaderValue};

use super::{AuthMethod, OrgId, Permission, UserId, X_ORG_ID, X_PERMISSIONS, X_USER_ID};
use crate::field_lines::FieldLines;
use crate::key::KeyId;

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
        self.value(&X_USER_ID)
    }

    /// Value of `X-Org-Id`.
    pub fn org_id(&self) -> HeaderValue {
        self.value(&X_ORG_ID)
    }

    /// Value of `X-Permissions`: sorted, with commas between them; empty when there are none.
    pub fn permissions(&self) -> HeaderValue {
        self.value(&X_PERMISSIONS)
    }

    fn value(&self, name: &HeaderName) -> HeaderValue {
        self.lines.value(name).expect("each of the fields has its line")
    }
}
