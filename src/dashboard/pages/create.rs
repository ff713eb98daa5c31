//! The form that makes a key.

use askama::Template;

use super::layout::Layout;

/// The form: fields `name` and, where there is a choice, `owner`.
#[derive(Clone, Debug, Template)]
#[template(path = "create.html")]
pub struct CreatePage {
    /// What is around it.
    pub layout: Layout,
    /// The name, as it was typed.
    pub name: String,
    /// Whose key it will be.
    pub owner: OwnerInput,
    /// What is wrong with the name.
    pub name_error: Option<String>,
    /// What is wrong with the owner.
    pub owner_error: Option<String>,
}

/// Whose key it will be.
#[derive(Clone, Debug)]
pub enum OwnerInput {
    /// The person's own: there is no choice.
    Fixed,
    /// One of these.
    Select(Vec<OwnerChoice>),
    /// Whoever has this email, typed so far.
    Text(String),
}

/// A user that a key can be made for.
#[derive(Clone, Debug)]
pub struct OwnerChoice {
    /// What is sent: the user's id.
    pub value: String,
    /// What is shown: the email.
    pub label: String,
    /// Whether it is chosen.
    pub selected: bool,
}

impl CreatePage {
    /// What is wrong, with the field that it is about.
    pub fn errors(&self) -> Vec<(&'static str, &str)> {
        let fields = [("name", &self.name_error), ("owner", &self.owner_error)];
        fields.into_iter().filter_map(|(field, error)| Some((field, error.as_deref()?))).collect()
    }

    /// The field where typing begins: the first with an error, else the name.
    pub fn begins_at_owner(&self) -> bool {
        self.name_error.is_none() && self.owner_error.is_some()
    }
}
