//! Fields of a policy in a submitted form: the change that they ask for, and the fields as they are shown again.
//!
//! - A field that is as the reader of the form knew it changes nothing: two people who change different fields both
//!   have their way. Nor does a field that the form does not have.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::dashboard::pages::{Expiry, PermissionChoice, PolicyErrors, PolicyFields};
use crate::management::{ManagementError, PolicyUpdate};
use crate::request::Form;
use domain::clock::Micros;
use domain::identity::Permission;
use domain::key::policy::{InvalidKeyPolicy, KeyPolicy, Network};
use domain::problem::sentence;

/// Error in the name of a key.
pub(super) const NAME_ERROR: &str = "Enter a name of 1 to 100 characters that all show.";

/// Changes of tags, by their names; `None` removes one.
type TagChanges = BTreeMap<String, Option<String>>;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Fields of a policy in a submitted form.
pub(super) struct PolicyInput {
    /// As they are shown again, with the errors in them.
    pub(super) fields: PolicyFields,
    /// The change, without the fields that have an error.
    pub(super) update: PolicyUpdate,
}

impl PolicyInput {
    /// Reads the fields of a form whose reader knew the policy `before`.
    pub(super) fn read(form: &Form, before: &KeyPolicy, now: Micros) -> Self {
        let mut errors = PolicyErrors::default();
        let update = PolicyUpdate {
            permissions: accept(permissions(form, before), &mut errors.permissions),
            expires: accept(expires(form, now), &mut errors.expiry),
            networks: accept(networks(form, before), &mut errors.networks),
            concurrent: accept(concurrent(form, before), &mut errors.concurrent),
            tags: accept(tags(form, before), &mut errors.tags),
        };
        let is_ticked = |name: &str| form.fields("permission").any(|ticked| ticked == name);
        let choice = |name: &str| PermissionChoice { name: name.to_owned(), is_ticked: is_ticked(name) };
        let fields = PolicyFields {
            permissions: form.fields("shown").map(choice).collect(),
            expiry: Expiry::from_value(form.field("expiry")).unwrap_or_default(),
            present_expiry: None,
            date: form.field("date").to_owned(),
            networks: form.field("networks").to_owned(),
            concurrent: form.field("concurrent").to_owned(),
            tags: form.field("tags").to_owned(),
            errors,
        };
        Self { fields, update }
    }

    pub(super) fn has_error(&self) -> bool {
        self.fields.errors != PolicyErrors::default()
    }

    /// Puts an error of the operation beside the field that it is about.
    ///
    /// # Errors
    /// The error, when it is about no field.
    pub(super) fn take_error(&mut self, error: ManagementError) -> Result<(), ManagementError> {
        let errors = &mut self.fields.errors;
        let field = match error {
            ManagementError::BeyondOwner(_) => &mut errors.permissions,
            ManagementError::InvalidKeyPolicy(InvalidKeyPolicy::TooManyNetworks) => &mut errors.networks,
            ManagementError::InvalidKeyPolicy(InvalidKeyPolicy::NoSlot) => &mut errors.concurrent,
            ManagementError::InvalidKeyPolicy(InvalidKeyPolicy::Tag | InvalidKeyPolicy::TooManyTags) => {
                &mut errors.tags
            }
            ManagementError::TooLate(_) => &mut errors.expiry,
            error => return Err(error),
        };
        *field = Some(match error {
            ManagementError::BeyondOwner(permission) => format!("The owner does not have {permission}. Untick it."),
            error => sentence(&error.to_string()),
        });
        Ok(())
    }
}

/// Takes the change of a field, or its error.
#[allow(clippy::option_option, reason = "a field of a merge patch")]
fn accept<T>(change: Result<Option<Option<T>>, String>, error: &mut Option<String>) -> Option<Option<T>> {
    change.unwrap_or_else(|text| {
        *error = Some(text);
        None
    })
}

#[allow(clippy::option_option, reason = "a field of a merge patch")]
fn permissions(form: &Form, before: &KeyPolicy) -> Result<Option<Option<Vec<Permission>>>, String> {
    let is_ticked = |name: &str| form.fields("permission").any(|ticked| ticked == name);
    let was_ticked =
        |name: &str| before.permissions.as_ref().is_none_or(|own| own.iter().any(|own| own.as_str() == name));
    if form.fields("shown").all(|name| is_ticked(name) == was_ticked(name)) {
        return Ok(None);
    }
    if form.fields("shown").all(is_ticked) {
        return Ok(Some(None));
    }
    let ticked: Result<_, _> = form.fields("shown").filter(|name| is_ticked(name)).map(str::parse).collect();
    ticked.map(|ticked| Some(Some(ticked))).map_err(|_| "Choose among these.".to_owned())
}

#[allow(clippy::option_option, reason = "a field of a merge patch")]
fn expires(form: &Form, now: Micros) -> Result<Option<Option<Micros>>, String> {
    let date = form.field("date");
    let expiry = match form.field("expiry") {
        // A form of a program that has none of these fields.
        "" if date.is_empty() => return Ok(None),
        value => Expiry::from_value(value).ok_or("Choose one of these.")?,
    };
    match expiry {
        // The date must not get lost: without it, the key would not expire.
        Expiry::Keep | Expiry::Never if !date.is_empty() => Err("Choose “On a date”, or clear the date.".to_owned()),
        Expiry::Keep => Ok(None),
        Expiry::Never => Ok(Some(None)),
        Expiry::Days(days) => Ok(Some(Some(now.after(DAY * u32::from(days))))),
        Expiry::Date => parse_date(date)
            .filter(|day| *day > now)
            .map(|day| Some(Some(day)))
            .ok_or_else(|| "Enter a date after today.".to_owned()),
    }
}

/// The beginning of a day, UTC, from a text such as `2027-01-31`.
pub(super) fn parse_date(text: &str) -> Option<Micros> {
    let is_date = text.len() == 10 && text.chars().all(|c| c.is_ascii_digit() || c == '-');
    is_date.then(|| format!("{text}T00:00:00Z").parse().ok()).flatten()
}

#[allow(clippy::option_option, reason = "a field of a merge patch")]
fn networks(form: &Form, before: &KeyPolicy) -> Result<Option<Option<Vec<Network>>>, String> {
    if !form.has_field("networks") {
        return Ok(None);
    }
    let networks = parse_networks(form.field("networks"))?;
    if networks == before.networks {
        return Ok(None);
    }
    Ok(Some(Some(networks).filter(|networks| !networks.is_empty())))
}

/// Networks in a text, separated by blanks, line ends or commas; sorted, each once.
pub(super) fn parse_networks(text: &str) -> Result<Vec<Network>, String> {
    let words = text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
    let networks: Result<Vec<Network>, _> = words.map(str::parse).collect();
    let mut networks = networks.map_err(|error| sentence(&error.to_string()))?;
    networks.sort_unstable();
    networks.dedup();
    Ok(networks)
}

#[allow(clippy::option_option, reason = "a field of a merge patch")]
fn concurrent(form: &Form, before: &KeyPolicy) -> Result<Option<Option<u32>>, String> {
    let number = match form.field("concurrent") {
        "" if !form.has_field("concurrent") => return Ok(None),
        "" => None,
        text => Some(text.parse().ok().filter(|number| *number > 0).ok_or("Enter a whole number of at least 1.")?),
    };
    Ok((number != before.concurrent).then_some(number))
}

/// Tags that were removed, and those that have another value.
#[allow(clippy::option_option, reason = "a field of a merge patch")]
fn tags(form: &Form, before: &KeyPolicy) -> Result<Option<Option<TagChanges>>, String> {
    if !form.has_field("tags") {
        return Ok(None);
    }
    let lines = form.field("tags").lines().map(str::trim).filter(|line| !line.is_empty());
    let parse =
        |line: &str| line.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    let tags: Option<BTreeMap<String, String>> = lines.map(parse).collect();
    let tags = tags.ok_or("Enter each tag as NAME=VALUE, one on a line.")?;
    let removed = before.tags.keys().filter(|name| !tags.contains_key(*name)).map(|name| (name.clone(), None));
    let set = tags.iter().filter(|(name, value)| before.tags.get(*name) != Some(value));
    let changes: TagChanges = removed.chain(set.map(|(name, value)| (name.clone(), Some(value.clone())))).collect();
    Ok((!changes.is_empty()).then_some(Some(changes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The day after this one begins at 1,795,305,600 s.
    const NOW: Micros = Micros(1_795_285_449_000_000);

    fn read(fields: &[(&str, &str)], before: &KeyPolicy) -> PolicyInput {
        PolicyInput::read(&Form::new(fields), before, NOW)
    }

    fn permissions(names: &[&str]) -> Vec<Permission> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn fields_that_stay_as_they_were_change_nothing() {
        let before = KeyPolicy {
            permissions: Some(permissions(&["a"])),
            networks: vec!["10.0.0.0/8".parse().unwrap()],
            concurrent: Some(3),
            expires: Some(Micros(NOW.0 + 1)),
            ..KeyPolicy::default()
        };
        let shown = [("shown", "a"), ("permission", "a"), ("shown", "b"), ("expiry", "keep")];
        let same = [&shown[..], &[("networks", " 10.0.0.0/8\r\n"), ("concurrent", "3")]].concat();
        assert!(read(&same, &before).update.is_empty());
        let cleared = read(
            &[
                ("shown", "a"),
                ("permission", "a"),
                ("shown", "b"),
                ("permission", "b"),
                ("expiry", "never"),
                ("networks", ""),
                ("concurrent", ""),
            ],
            &before,
        );
        let nothing = PolicyUpdate {
            permissions: Some(None),
            expires: Some(None),
            networks: Some(None),
            concurrent: Some(None),
            tags: None,
        };
        assert_eq!(cleared.update, nothing);
    }

    #[test]
    fn fields_that_a_form_does_not_have_change_nothing() {
        let before = KeyPolicy {
            permissions: Some(permissions(&["a"])),
            networks: vec!["10.0.0.0/8".parse().unwrap()],
            concurrent: Some(3),
            expires: Some(Micros(NOW.0 + 1)),
            ..KeyPolicy::default()
        };
        assert!(read(&[], &before).update.is_empty());
        let cleared = read(&[("networks", ""), ("concurrent", "")], &before).update;
        assert_eq!((cleared.networks, cleared.concurrent), (Some(None), Some(None)));
    }

    #[test]
    fn unticked_permissions_are_left_out() {
        let some = read(&[("shown", "a"), ("shown", "b"), ("permission", "b")], &KeyPolicy::default());
        assert_eq!(some.update.permissions, Some(Some(permissions(&["b"]))));
        let none = read(&[("shown", "a")], &KeyPolicy::default());
        assert_eq!(none.update.permissions, Some(Some(vec![])), "not all of the owner's");
        let forged = read(&[("shown", "a"), ("permission", "a"), ("permission", "c")], &KeyPolicy::default());
        assert_eq!(forged.update.permissions, None, "a permission that was not shown counts for nothing");
    }

    #[test]
    fn expiry_is_in_some_days_or_at_the_beginning_of_a_day() {
        let expires = |fields: &[(&str, &str)]| {
            let input = read(fields, &KeyPolicy::default());
            assert_eq!(input.has_error(), input.update.expires.is_none(), "{fields:?}");
            input.update.expires.flatten()
        };
        assert_eq!(expires(&[("expiry", "30d")]), Some(NOW.after(30 * DAY)));
        let tomorrow = [("expiry", "date"), ("date", "2026-11-22")];
        assert_eq!(expires(&tomorrow), Some(Micros(1_795_305_600_000_000)));
        for (expiry, date) in [("date", "2026-11-21"), ("date", ""), ("date", "2026-02-30"), ("never", "2026-11-22")] {
            assert_eq!(expires(&[("expiry", expiry), ("date", date)]), None, "{expiry} {date}");
        }
        assert_eq!(expires(&[("expiry", "31d")]), None);
    }

    #[test]
    fn errors_are_beside_their_fields_and_entries_are_kept() {
        let fields = [("networks", "10.0.0.1/8"), ("concurrent", "0"), ("shown", "a"), ("expiry", "date")];
        let input = read(&fields, &KeyPolicy::default());
        let fields: Vec<_> = input.fields.errors.all().into_iter().map(|(field, _)| field).collect();
        assert_eq!(fields, ["expiry", "networks", "concurrent"]);
        assert!(input.fields.errors.networks.unwrap().contains("write 10.0.0.0/8"));
        assert_eq!((&*input.fields.networks, &*input.fields.concurrent), ("10.0.0.1/8", "0"));
        assert_eq!(input.fields.expiry, Expiry::Date);
    }
}
