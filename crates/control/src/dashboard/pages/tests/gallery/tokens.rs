//! Management tokens: their table, and the forms that create and revoke one.

use super::*;
use crate::management::{ADMIN_SCOPES, TokenStatus};
use domain::secret::Secret;

/// A text as long as a token, which is none.
pub(crate) const NEW_TOKEN: &str =
    concat!("kgm_", "aC30079190", "_", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");

pub(super) fn pages() -> Vec<NamedPage> {
    render([
        ("tokens", &tokens(rows())),
        ("tokens-empty", &tokens(Vec::new())),
        ("create-token", &create(TokenErrors::default())),
        ("create-token-wrong", &create(errors())),
        ("new-token", &new_token()),
        (
            "revoke-token",
            &RevokeTokenPage { layout: layout(NavEntry::Tokens, true), facts: facts(HOSTILE, TokenStatus::Active) },
        ),
    ])
}

fn tokens(rows: Vec<TokenFacts>) -> TokensPage {
    TokensPage { layout: layout(NavEntry::Tokens, true), rows, paging: Paging::new(None, None, |_| String::new()) }
}

fn rows() -> Vec<TokenFacts> {
    let everything = TokenFacts {
        scopes: ADMIN_SCOPES.map(|scope| scope.as_str()).into(),
        networks: vec!["10.0.0.0/8".into(), "2001:db8:1234:5678:9abc:def0:1234:5678/128".into()],
        ..facts(LONG, TokenStatus::Active)
    };
    vec![
        everything,
        facts("Terraform", TokenStatus::Revoked),
        facts("Pipeline", TokenStatus::Expired),
        facts("Nightly", TokenStatus::CreatorNotAdmin),
        TokenFacts { client_san: Some(HOSTILE.into()), ..facts(HOSTILE, TokenStatus::Active) },
    ]
}

fn facts(name: &str, status: TokenStatus) -> TokenFacts {
    TokenFacts {
        id: "aC30079190".into(),
        name: name.into(),
        status,
        scopes: vec!["keys:read", "keys:create"],
        networks: Vec::new(),
        client_san: None,
        created: ago(40 * DAY),
        created_by: if name == "Pipeline" { "the operator" } else { "ada.lovelace@acme.example" }.into(),
        expires: if status == TokenStatus::Expired { ago(DAY) } else { coming(50 * DAY) },
        last_use: (name != "Nightly").then(|| last_use(300, Some(name))).flatten(),
    }
}

fn create(errors: TokenErrors) -> CreateTokenPage {
    let choice = |scope| ScopeChoice { scope, is_ticked: errors.scopes.is_some() };
    CreateTokenPage {
        layout: layout(NavEntry::Tokens, true),
        name: errors.name.as_ref().map(|_| HOSTILE.into()).unwrap_or_default(),
        scopes: ADMIN_SCOPES.map(choice).into(),
        expiry: TokenExpiry::default(),
        networks: errors.networks.clone().unwrap_or_default(),
        errors,
    }
}

fn errors() -> TokenErrors {
    TokenErrors {
        name: Some("Enter a name of 1 to 100 characters that all show.".into()),
        scopes: Some("Tick one at least.".into()),
        expiry: Some("Choose one of these.".into()),
        networks: Some(format!("{HOSTILE} is not a network.")),
        general: Some("The token would have expired already.".into()),
    }
}

pub(crate) fn new_token() -> NewTokenPage {
    NewTokenPage {
        layout: layout(NavEntry::Tokens, true),
        facts: facts(LONG, TokenStatus::Active),
        token: Secret::new(NEW_TOKEN.to_owned()),
    }
}
