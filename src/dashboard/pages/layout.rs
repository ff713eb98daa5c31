//! What is around every page: the organization and its switcher, the navigation, the person, and a notice.

/// What is around a page.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The path that all pages are below, such as `/settings`; without a slash at its end.
    pub base: String,
    /// Who is signed in, and where; none leaves the navigation away.
    pub person: Option<Viewer>,
    /// Which entry of the navigation the page belongs to.
    pub section: NavEntry,
    /// What has just been done, such as `The key laptop is revoked.`; shown above the page.
    pub notice: Option<String>,
}

/// A person in an organization.
#[derive(Clone, Debug)]
pub struct Viewer {
    /// The email address.
    pub email: String,
    /// Whether all of the organization is theirs to manage, or what they own.
    pub admin: bool,
    /// The name of the organization chosen.
    pub org: String,
    /// All organizations of the person; a switcher is shown when there are several.
    pub orgs: Vec<OrgChoice>,
}

/// An organization that a person can work in.
#[derive(Clone, Debug)]
pub struct OrgChoice {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Whether it is the chosen one.
    pub current: bool,
}

/// An entry of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NavEntry {
    /// API Keys.
    Keys,
    /// Sessions.
    Sessions,
    /// None of them.
    Elsewhere,
}

impl Viewer {
    /// What the person may do, in a word.
    pub fn role(&self) -> &'static str {
        if self.admin { "Admin" } else { "Member" }
    }

    /// Whether there is something to switch to.
    pub fn can_switch(&self) -> bool {
        self.orgs.len() > 1
    }
}
