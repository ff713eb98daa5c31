//! The frame of every page: organization switcher, navigation, signed-in user and notice.

/// Values of the page frame.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Path that all pages are below, such as `/settings`, without a slash at its end.
    pub base: String,
    /// The signed-in user; without one, there is no navigation.
    pub viewer: Option<Viewer>,
    /// The entry of the navigation that the page belongs to.
    pub nav: NavEntry,
    /// Confirmation of what was just done, such as `The session is ended.`, above the page.
    pub notice: Option<String>,
}

/// The signed-in user, in an organization.
#[derive(Clone, Debug)]
pub struct Viewer {
    /// Email address.
    pub email: String,
    /// True if the user manages the whole organization, and not only their own keys.
    pub admin: bool,
    /// Name of the chosen organization.
    pub org: String,
    /// All organizations of the user; a switcher is shown when there are several.
    pub orgs: Vec<OrgChoice>,
}

/// An organization in the switcher.
#[derive(Clone, Debug)]
pub struct OrgChoice {
    /// Id.
    pub id: String,
    /// Name.
    pub name: String,
    /// True if it is the chosen one.
    pub current: bool,
}

/// An entry of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NavEntry {
    /// Overview, for admins.
    Overview,
    /// API Keys.
    Keys,
    /// Audit.
    Audit,
    /// Users, for admins.
    Users,
    /// Management tokens, for admins.
    Tokens,
    /// Sessions.
    Sessions,
    /// None of the entries.
    Other,
}

impl Layout {
    /// The frame of a page that is shown without a session.
    pub fn without_viewer(base: &str) -> Self {
        Self { base: base.to_owned(), viewer: None, nav: NavEntry::Other, notice: None }
    }
}

impl Viewer {
    /// The role, as a word.
    pub fn role(&self) -> &'static str {
        if self.admin { "Admin" } else { "Member" }
    }

    /// Returns `true` if there is another organization to switch to.
    pub fn can_switch(&self) -> bool {
        self.orgs.len() > 1
    }
}
