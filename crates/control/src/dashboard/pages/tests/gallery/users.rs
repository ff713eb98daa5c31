//! The table of users, and the forms for people.

use super::*;
use domain::secret::Secret;

pub(super) fn pages() -> Vec<NamedPage> {
    let suspend = |keys| SuspendUserPage {
        layout: layout(NavEntry::Users, true),
        id: "usr_01".into(),
        email: HOSTILE.into(),
        keys,
    };
    let (few, many) = (suspend(Some(1234)), suspend(None));
    let choice = |name: &str| PermissionChoice { name: name.into(), is_ticked: name == "org:admin" };
    let permissions = || vec![choice("org:admin"), choice("queries:read")];
    let add = |email: &str, error: Option<&str>| AddUserPage {
        layout: layout(NavEntry::Users, true),
        email: email.into(),
        permissions: permissions(),
        error: error.map(str::to_owned),
    };
    let user = |email: &str, link, error: Option<&str>| UserPage {
        layout: layout(NavEntry::Users, true),
        id: "usr_01".into(),
        email: email.into(),
        state: UserStatus::Active,
        permissions: permissions(),
        link,
        error: error.map(str::to_owned),
    };
    let link = (Secret::new("https://gateway.example.com/settings/link/secret".to_owned()), ago(0));
    render([
        ("add-user", &add("", None)),
        ("add-user-error", &add(HOSTILE, Some("This is no email address."))),
        ("user", &user("bob@acme.example", None, None)),
        ("user-link", &user(LONG, Some(link), None)),
        ("user-error", &user(HOSTILE, None, Some("Tick the box to remove the person for good."))),
        ("users", &users(rows())),
        ("users-empty", &users(Vec::new())),
        ("suspend-user", &few),
        ("suspend-user-many", &many),
    ])
}

fn users(rows: Vec<UserRow>) -> UsersPage {
    let paging = Paging::new(None, None, |_| String::new());
    UsersPage { layout: layout(NavEntry::Users, true), rows, paging, are_managed: true }
}

fn rows() -> Vec<UserRow> {
    let responsible = |name: &str, gone| Some(ResponsibleCell { name: name.into(), gone });
    vec![
        row("ada.lovelace@acme.example", UserStatus::Active, None),
        row("bob@acme.example", UserStatus::Suspended, None),
        row("withdrawn@acme.example", UserStatus::Withdrawn, None),
        row("nightly report", UserStatus::Active, responsible("ada.lovelace@acme.example", None)),
        row(LONG, UserStatus::Active, responsible("bob@acme.example", Some(UserStatus::Suspended))),
        row("import", UserStatus::Suspended, responsible("eve@acme.example", Some(UserStatus::Removed))),
        row(HOSTILE, UserStatus::Removed, responsible(HOSTILE, Some(UserStatus::Withdrawn))),
    ]
}

fn row(email: &str, state: UserStatus, responsible: Option<ResponsibleCell>) -> UserRow {
    UserRow {
        id: format!("usr_{:032x}", email.len()),
        email: email.into(),
        is_viewer: email.starts_with("ada"),
        state,
        is_of_operator: email == "import",
        permissions: if email.len().is_multiple_of(3) { String::new() } else { "org:admin, queries:read".into() },
        plan: responsible.as_ref().map(|_| "pro".to_owned()),
        responsible,
        created: ago(90 * DAY),
    }
}
