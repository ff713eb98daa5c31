//! The form that creates a management token.

use std::collections::BTreeSet;
use std::time::Duration;

use super::policy_form::parse_networks;
use super::{HandlerResult, PageContext, new_key, render_form};
use crate::management;

use crate::dashboard::pages::{CreateTokenPage, NavEntry, ScopeChoice, TokenErrors, TokenExpiry};
use crate::management::{ADMIN_SCOPES, ManagementError, TokenSettings};
use crate::request::Form;
use domain::clock::Micros;
use domain::key::policy::Network;
use domain::management_token::{MAX_NETWORKS, TokenScope};
use domain::names;

const DAY: Duration = Duration::from_secs(24 * 3600);

pub(super) async fn show_create_token(context: &PageContext<'_>) -> HandlerResult {
    if !context.user.is_admin() {
        return Err(ManagementError::NotAllowed);
    }
    token_form(context, &Form::default(), TokenErrors::default()).await
}

/// The form with these values, and with the errors in them.
async fn token_form(context: &PageContext<'_>, form: &Form, errors: TokenErrors) -> HandlerResult {
    let choice = |scope: TokenScope| ScopeChoice {
        scope,
        is_ticked: form.fields("scope").any(|ticked| ticked == scope.as_str()),
    };
    let page = CreateTokenPage {
        layout: context.layout(NavEntry::Tokens).await?,
        name: form.field("name").to_owned(),
        scopes: ADMIN_SCOPES.map(choice).into(),
        expiry: TokenExpiry::from_value(form.field("expiry")).unwrap_or_default(),
        networks: form.field("networks").to_owned(),
        errors,
    };
    let has_error = !page.errors.all().is_empty();
    render_form(&page, has_error)
}

pub(super) async fn create_token(context: &PageContext<'_>) -> HandlerResult {
    let form = context.request.form();
    let settings = match token_settings(&form, context.org(), context.request.now) {
        Ok(settings) => settings,
        Err(errors) => return token_form(context, &form, errors).await,
    };
    let sealer = management::key_sealer(context.management, context.user).await?;
    let errors = match management::create_token(context.management, &context.actor, settings, context.request.now).await
    {
        Ok(created) => return new_key::lead_to_new_token(context, &sealer, &created),
        Err(error @ ManagementError::InvalidToken(_)) => {
            TokenErrors { general: Some(error.for_people()), ..TokenErrors::default() }
        }
        Err(error) => return Err(error),
    };
    token_form(context, &form, errors).await
}

/// Reads the settings of a token from a submitted form, or the errors in it.
fn token_settings(form: &Form, org: String, now: Micros) -> Result<TokenSettings, TokenErrors> {
    let mut errors = TokenErrors::default();
    let name = form.field("name").to_owned();
    if names::validate_name(&name).is_err() {
        errors.name = Some("Enter a name of 1 to 100 characters that all show.".to_owned());
    }
    let allow = scopes(form).unwrap_or_else(|error| {
        errors.scopes = Some(error);
        BTreeSet::new()
    });
    let expiry = TokenExpiry::from_value(form.field("expiry"));
    if expiry.is_none() {
        errors.expiry = Some("Choose one of these.".to_owned());
    }
    let networks = networks(form).unwrap_or_else(|error| {
        errors.networks = Some(error);
        Vec::new()
    });
    if !errors.all().is_empty() {
        return Err(errors);
    }
    let expires = expiry.map(|expiry| now.after(DAY * u32::from(expiry.days())));
    Ok(TokenSettings { name, org: Some(org), allow, expires, networks, client_san: None })
}

fn scopes(form: &Form) -> Result<BTreeSet<TokenScope>, String> {
    let scopes: Result<BTreeSet<_>, _> = form.fields("scope").map(str::parse).collect();
    match scopes {
        Ok(scopes) if scopes.is_empty() => Err("Tick one at least.".to_owned()),
        Ok(scopes) => Ok(scopes),
        Err(_) => Err("Choose among these.".to_owned()),
    }
}

fn networks(form: &Form) -> Result<Vec<Network>, String> {
    let networks = parse_networks(form.field("networks"))?;
    if networks.len() > MAX_NETWORKS { Err(format!("Enter {MAX_NETWORKS} at most.")) } else { Ok(networks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros(1_795_285_449_000_000);

    fn read(fields: &[(&str, &str)]) -> Result<TokenSettings, TokenErrors> {
        token_settings(&Form::new(fields), "org_1".into(), NOW)
    }

    #[test]
    fn settings_are_those_of_the_form() {
        let fields = [
            ("name", "pipeline"),
            ("scope", "keys:read"),
            ("scope", "keys:create"),
            ("expiry", "366d"),
            ("networks", "10.0.0.0/8\r\n203.0.113.7\r\n10.0.0.0/8"),
        ];
        let settings = read(&fields).unwrap();
        assert_eq!((&*settings.name, settings.org.as_deref()), ("pipeline", Some("org_1")));
        assert_eq!(settings.allow, [TokenScope::KeysRead, TokenScope::KeysCreate].into());
        assert_eq!(settings.expires, Some(NOW.after(366 * DAY)));
        assert_eq!(
            settings.networks.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.0.0.0/8", "203.0.113.7/32"]
        );
    }

    #[test]
    fn errors_are_beside_their_fields() {
        let errors = read(&[("expiry", "91d"), ("networks", "10.0.0.1/8")]).unwrap_err();
        let fields: Vec<_> = errors.all().into_iter().map(|(field, _)| field).collect();
        assert_eq!(fields, ["name", "scopes", "expiry", "networks"]);
        let many: Vec<String> = (0..=MAX_NETWORKS).map(|last| format!("192.0.2.{last}")).collect();
        let fields = [("expiry", "30d"), ("scope", "keys:*"), ("networks", &*many.join("\n"))];
        let errors = read(&fields).unwrap_err();
        assert_eq!(errors.scopes.as_deref(), Some("Choose among these."));
        assert_eq!(errors.networks.as_deref(), Some("Enter 32 at most."));
    }
}
