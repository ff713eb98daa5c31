//! The form that creates a key.

use askama::Template;

use super::layout::Layout;
use super::policy::PolicyFields;

/// The form. Fields: `name`, `owner` where there is a choice, and those of [`PolicyFields`].
#[derive(Clone, Debug, Template)]
#[template(path = "create.html")]
pub struct CreatePage {
    /// Page frame.
    pub layout: Layout,
    /// The name that was typed.
    pub name: String,
    /// The field for the key's owner.
    pub owner: OwnerInput,
    /// The fields for the key's policy, which are folded away.
    pub policy: PolicyFields,
    /// Error in the name.
    pub name_error: Option<String>,
    /// Error in the owner.
    pub owner_error: Option<String>,
}

/// The field for the key's owner.
#[derive(Clone, Debug)]
pub enum OwnerInput {
    /// No field: the owner is the signed-in user.
    Fixed,
    /// A list of users.
    Select(Vec<OwnerChoice>),
    /// A text field for an email address or a name of a service, with this value.
    Text(String),
}

/// A user in the list of owners.
#[derive(Clone, Debug)]
pub struct OwnerChoice {
    /// Submitted value: the user's id.
    pub value: String,
    /// Shown text: the email address, or the name of a service.
    pub label: String,
    /// True if it is selected.
    pub selected: bool,
}

impl CreatePage {
    /// All errors, each with the name of its field.
    pub fn errors(&self) -> Vec<(&'static str, &str)> {
        let fields = [("name", &self.name_error), ("owner", &self.owner_error)];
        let named = fields.into_iter().filter_map(|(field, error)| Some((field, error.as_deref()?)));
        named.chain(self.policy.errors.all()).collect()
    }

    /// Returns `true` if the key may be for another owner than the signed-in user.
    pub fn has_owner_choice(&self) -> bool {
        !matches!(self.owner, OwnerInput::Fixed)
    }

    /// Returns `true` if the owner has the focus, being the first field with an error; else the name has it.
    pub fn focuses_owner(&self) -> bool {
        self.name_error.is_none() && self.owner_error.is_some()
    }
}
