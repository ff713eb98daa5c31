//! The forms that create, rotate and revoke a key, and the page of a new key.

use super::*;
use crate::management::GoodPractice;
use domain::secret::Secret;

/// A text as long as a key, which is none.
pub(crate) const NEW_KEY: &str =
    concat!("sk_live_", "aC3007919", "_", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");

pub(super) fn pages() -> Vec<NamedPage> {
    let confirm = RotateErrors { overlap: None, name: Some("The key is in use. Type its name to confirm.") };
    render([
        ("create", &create(owners())),
        ("create-member", &create(OwnerInput::Fixed)),
        ("create-wrong", &create_with_errors()),
        ("create-restricted", &create_restricted()),
        ("policy", &policy_page(PolicyErrors::default())),
        ("policy-wrong", &policy_page(policy_errors())),
        ("policy-widened", &widened()),
        ("selected", &selected(SelectedAction::Disable, None)),
        ("selected-in-use", &selected(SelectedAction::Revoke, Some("Type 2 to confirm."))),
        (
            "selected-none",
            &SelectedPage { rows: vec![], ..selected(SelectedAction::Revoke, Some("No key is selected.")) },
        ),
        ("selected-result", &selected_result()),
        ("new-key", &new_key(Issuance::Created)),
        ("new-key-rotated", &new_key(Issuance::Rotated(Some(coming(DAY))))),
        ("new-key-replaced", &new_key(Issuance::Rotated(None))),
        ("revoke", &revoke("Nightly report", None)),
        (
            "revoke-unused",
            &RevokePage { is_in_use: false, last_use: last_use(40 * DAY, None), ..revoke("Laptop", None) },
        ),
        ("revoke-wrong", &revoke(HOSTILE, Some("That is not the key’s name."))),
        ("rotate", &rotate(RotateErrors::default())),
        ("rotate-wrong", &rotate(RotateErrors { overlap: Some("Choose one of these."), name: None })),
        ("rotate-confirm", &RotatePage { asks_name: true, ..rotate(confirm) }),
        ("rotate-again", &RotatePage { asks_name: true, earlier_until: Some(coming(DAY)), ..rotate(confirm) }),
    ])
}

fn create(owner: OwnerInput) -> CreatePage {
    let policy = PolicyFields { permissions: choices(&[true, true]), ..PolicyFields::default() };
    let name = String::new();
    CreatePage { layout: layout(NavEntry::Keys, true), name, owner, policy, name_error: None, owner_error: None }
}

fn create_restricted() -> CreatePage {
    let policy = PolicyFields { permissions: choices(&[true, false]), errors: policy_errors(), ..entered() };
    CreatePage { name: "Nightly report".into(), policy, ..create(OwnerInput::Fixed) }
}

fn choices(ticked: &[bool]) -> Vec<PermissionChoice> {
    let choice = |(name, is_ticked): (&str, &bool)| PermissionChoice { name: name.into(), is_ticked: *is_ticked };
    ["queries:read", HOSTILE].into_iter().zip(ticked).map(choice).collect()
}

fn entered() -> PolicyFields {
    PolicyFields {
        permissions: choices(&[true, false]),
        expiry: Expiry::Date,
        date: "2026-12-24".into(),
        networks: format!("10.0.0.0/8\n{HOSTILE}"),
        concurrent: "20".into(),
        ..PolicyFields::default()
    }
}

fn policy_errors() -> PolicyErrors {
    PolicyErrors {
        permissions: Some("The owner does not have queries:write. Untick it.".into()),
        expiry: Some("Enter a date after today.".into()),
        networks: Some(format!("{HOSTILE} is not a network.")),
        concurrent: Some("Enter a whole number of at least 1.".into()),
        tags: Some("Enter each tag as NAME=VALUE, one on a line.".into()),
    }
}

fn policy_page(errors: PolicyErrors) -> PolicyPage {
    PolicyPage {
        layout: layout(NavEntry::Keys, true),
        id: "aC3007919".into(),
        name: "Nightly report".into(),
        entered_name: "Nightly report".into(),
        name_error: None,
        rate: None,
        owner: "ada.lovelace@acme.example".into(),
        narrows_only: true,
        before: "{}".into(),
        policy: PolicyFields { present_expiry: Some("never".into()), expiry: Expiry::Keep, errors, ..entered() },
        error: None,
    }
}

fn widened() -> PolicyPage {
    let error = Some("The limit is 1,000. Enter 1,000 at most.".to_owned());
    PolicyPage {
        rate: Some(RateField { present: 1000, per: "hour".into(), entered: "2000".into(), error }),
        error: Some("You may narrow this key and not widen it.".into()),
        ..policy_page(PolicyErrors::default())
    }
}

fn selected_rows() -> Vec<SelectedRow> {
    let row = |name: &str, last_used| SelectedRow {
        id: "aC3007919".into(),
        name: name.into(),
        owner: "ada.lovelace@acme.example".into(),
        state: KeyStatus::Active,
        is_in_use: last_used,
        last_used: last_used.then(|| ago(184)),
    };
    vec![row("Nightly report", true), row(HOSTILE, false)]
}

fn selected(action: SelectedAction, error: Option<&str>) -> SelectedPage {
    let rows = selected_rows();
    SelectedPage { layout: layout(NavEntry::Keys, true), action, rows, error: error.map(Into::into) }
}

fn selected_result() -> SelectedResultPage {
    let reason = "Key aC3007919 is revoked, for good; create another.";
    let failures = selected_rows().into_iter().map(|row| (row, reason.into())).collect();
    SelectedResultPage { layout: layout(NavEntry::Keys, true), action: SelectedAction::Disable, changed: 3, failures }
}

fn owners() -> OwnerInput {
    let choice = |email: &str, selected| OwnerChoice { value: email.into(), label: email.into(), selected };
    OwnerInput::Select(vec![choice("ada.lovelace@acme.example", true), choice("grace@acme.example", false)])
}

fn create_with_errors() -> CreatePage {
    CreatePage {
        name_error: Some("Give the key a name of 1 to 100 characters.".into()),
        owner_error: Some(format!("{HOSTILE} is not a user of this organization.")),
        ..create(OwnerInput::Text(HOSTILE.into()))
    }
}

pub(crate) fn new_key(issuance: Issuance) -> NewKeyPage {
    let curl_command = format!("curl https://gateway.example/api/queries \\\n  -H 'Authorization: Bearer {NEW_KEY}'");
    let name = "Nightly report".into();
    let owner = "ada.lovelace@acme.example".into();
    let api_key = Secret::new(NEW_KEY.to_owned());
    let curl_command = Secret::new(curl_command);
    NewKeyPage {
        layout: layout(NavEntry::Keys, true),
        issuance,
        id: "aC3007919".into(),
        name,
        owner,
        api_key,
        curl_command,
        programs: ["Python", "JavaScript", "Go"].map(|language| ExampleProgram {
            id: if language == "Go" { "go" } else { language },
            language,
            text: format!("fetch(\"https://gateway.example/{HOSTILE}\")"),
        }),
        has_events: true,
        exports: Secret::new(GoodPractice::exports(NEW_KEY, "https://gateway.example")),
        revocation: Some(
            "curl -X POST -H \"Authorization: Bearer $KEY\" 'https://gateway.example/v1/self-revoke'".into(),
        ),
        practice: GoodPractice::LINES,
    }
}

fn revoke(name: &str, error: Option<&str>) -> RevokePage {
    let id = "aC3007919".into();
    let owner = "ada.lovelace@acme.example".into();
    let last_use = last_use(184, Some(FIREFOX));
    let error = error.map(Into::into);
    RevokePage { layout: layout(NavEntry::Keys, true), id, name: name.into(), owner, last_use, is_in_use: true, error }
}

fn rotate(errors: RotateErrors) -> RotatePage {
    RotatePage {
        layout: layout(NavEntry::Keys, true),
        id: "aC3007919".into(),
        name: "Nightly report".into(),
        owner: "ada.lovelace@acme.example".into(),
        rotated: "never".into(),
        overlap: Overlap::Day,
        is_in_use: true,
        earlier_until: None,
        asks_name: false,
        errors,
    }
}
