//! Users and keys of the document: what all sources share. Names become addresses, groups permissions, and limits of a
//! consumer limits of its key, where both say the same.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

use super::consumer::{Consumer, Key, Limit, Scope};
use super::field::Named;
use super::limit::SEVERAL;
use super::options::Options;
use super::placeholder;
use super::report::{Place, Report};
use control::management::ADMIN;
use domain::budget::OwnBudget;
use domain::identity::Permission;
use domain::key::KeyDigest;
use domain::key::policy::KeyPolicy;
use domain::names;
use domain::plan_name::PlanName;
use domain::quota::Quota;
use platform::settings::WithUnit;

/// Domain of addresses that are made of usernames: RFC 2606 keeps it from being anybody's.
const DOMAIN: &str = "consumer.invalid";
/// Characters of a key's name.
const MAX_NAME: usize = 100;
/// Users whose keys have the same limits, from which on these are a plan.
const SHARED: usize = 10;

/// A user with keys.
#[derive(Debug)]
pub struct User {
    /// Address.
    pub email: String,
    /// Permissions; none: they are not set.
    pub permissions: Option<Vec<Permission>>,
    /// Its keys.
    pub keys: Vec<UserKey>,
}

/// A key of a user.
#[derive(Debug)]
pub struct UserKey {
    /// Name.
    pub name: String,
    /// Digest of its text.
    pub digest: KeyDigest,
    /// Rate limit; none: that of its plan, or the configured one.
    pub limits: Option<Quota>,
    /// Plan, in the place of limits that many users have.
    pub plan: Option<PlanName>,
    /// Requests that it may make in a day or a month.
    pub budget: Option<OwnBudget>,
    /// Its policy.
    pub policy: KeyPolicy,
}

/// Makes the users of all consumers.
pub(crate) fn users(consumers: Vec<Consumer>, options: Options, report: &mut Report) -> Vec<User> {
    let digests = digests(&consumers, report);
    let mut first_users: HashMap<String, FirstUser> = HashMap::with_capacity(consumers.len());
    let mut users = Vec::with_capacity(consumers.len());
    let mut later = Vec::new();
    for consumer in consumers {
        let line = consumer.place.at.line;
        let name = consumer.username.as_ref().or(consumer.custom_id.as_ref()).map(|name| name.text.clone());
        let Some((place, user)) = user(consumer, options, &digests, report) else { continue };
        match first_users.entry(user.email.clone()) {
            Entry::Occupied(first) if first.get().name == name => {
                report.error(&place, format_args!("is the same user as in line {}; remove one", first.get().line));
            }
            Entry::Occupied(first) => later.push((users.len(), place, first.get().line)),
            Entry::Vacant(vacant) => _ = vacant.insert(FirstUser { line, name, suffix: 2 }),
        }
        users.push(user);
    }
    // All addresses without a suffix are known now, so that none with one is another consumer's.
    for (index, place, line) in later {
        let email = free_email(&users[index].email, &mut first_users);
        if names::validate_email(&email).is_err() {
            report.error(&place, format_args!("makes the address of the user in line {line}; give it another name"));
            continue;
        }
        report.note(&place, format_args!("makes the address of the user in line {line}; this one is {email}"));
        users[index].email = email;
    }
    users
}

/// The first consumer with an address.
struct FirstUser {
    line: usize,
    name: Option<Box<str>>,
    /// Suffix of the next consumer that makes the same address.
    suffix: usize,
}

/// An address that no consumer has, made of one that is taken. It is at a reserved domain: no sign-in leads to it.
fn free_email(taken: &str, first_users: &mut HashMap<String, FirstUser>) -> String {
    let suffix_domain = format!("@{DOMAIN}");
    let local = taken.strip_suffix(&suffix_domain).map_or_else(|| local_part(taken), Cow::from);
    loop {
        let first = first_users.get_mut(taken).expect("the address is taken");
        let email = format!("{local}-{}{suffix_domain}", first.suffix);
        first.suffix += 1;
        if !first_users.contains_key(&email) {
            first_users.insert(email.clone(), FirstUser { line: 0, name: None, suffix: 2 });
            return email;
        }
    }
}

/// The digests of all keys. Reports those that are there twice.
fn digests(consumers: &[Consumer], report: &mut Report) -> HashSet<KeyDigest> {
    let mut lines: HashMap<KeyDigest, usize> = HashMap::with_capacity(consumers.len());
    for key in consumers.iter().flat_map(|consumer| &consumer.keys) {
        match lines.entry(key.digest) {
            Entry::Occupied(first) => {
                report.error(&key.place, format_args!("is the same key as in line {}; remove one", first.get()));
            }
            Entry::Vacant(vacant) => _ = vacant.insert(key.place.at.line),
        }
    }
    lines.into_keys().collect()
}

/// Makes the user of a consumer, with the place of what the address is made of.
fn user(
    consumer: Consumer,
    options: Options,
    digests: &HashSet<KeyDigest>,
    report: &mut Report,
) -> Option<(Place, User)> {
    let Consumer { place, username, custom_id, groups, limits, keys } = consumer;
    let Some(name) = username.as_ref().or(custom_id.as_ref()) else {
        report.error(&place, "has neither a username nor a custom_id");
        return None;
    };
    let address = custom_id.as_ref().filter(|_| options.email_from_custom_id);
    let email = match address {
        Some(id) if names::validate_email(&id.text).is_ok() => id.text.to_lowercase(),
        source => format!("{}@{DOMAIN}", local_part(&source.unwrap_or(name).text)),
    };
    let source = address.unwrap_or(name);
    if names::validate_email(&email).is_err() {
        report.error(&source.place, "makes no address of a user: it is too long, or has letters that look like others");
        return None;
    }
    if let Some(id) = custom_id.as_ref().filter(|id| address.is_none() && id.text != name.text) {
        report.leave(id.place.clone(), "the custom_id has no counterpart; --email-from custom_id makes it the address");
    }
    let permissions = permissions(&groups, options, report);
    let shown = keys.iter().filter_map(|key| key.name.as_ref()).chain([name, source]);
    for shown in shown.chain(groups.iter().filter(|_| options.permissions_from_groups)) {
        if let Some(flaw) = placeholder::flaw(&shown.text) {
            report.error(&shown.place, flaw);
            return None;
        }
        if digests.contains(&KeyDigest::of(shown.text.as_bytes())) {
            report.error(&shown.place, "is a key itself, and would be shown; give it another name");
            return None;
        }
    }
    if let Some(key) = keys.iter().find(|key| has_tag_of(key, digests)) {
        report.error(&key.place, "has a tag that is a key itself, and would be shown; remove it");
        return None;
    }
    let limit = consumer_limit(&limits, keys.len(), report);
    let keys = keys.into_iter().filter_map(|key| {
        let named = key.name.as_ref().unwrap_or(name);
        let mut policy = key.policy.map(|policy| *policy).unwrap_or_default();
        policy.permissions =
            policy.permissions.filter(|own| permissions.as_ref().is_some_and(|of_user| of_user != own));
        let (name, limits) = (key_name(named, report)?, key.limit.or(limit));
        Some(UserKey { name, digest: key.digest, limits, plan: None, budget: key.budget, policy })
    });
    let keys = keys.collect();
    Some((source.place.clone(), User { email, permissions, keys }))
}

/// The local part of an address, of any text: characters that an address cannot have are percent-encoded, and so is the
/// percent sign, so that two texts never make one address. Upper and lower case are the same user.
fn local_part(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| !c.is_whitespace() && !names::is_refused(c) && !"%@,;<>\"".contains(c);
    if text.chars().all(is_plain) {
        return text.to_lowercase().into();
    }
    let mut local = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_plain(c) {
            local.push(c);
            continue;
        }
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            let _ = write!(local, "%{byte:02x}");
        }
    }
    local.to_lowercase().into()
}

/// The name of a key, of at most 100 characters.
fn key_name(named: &Named, report: &mut Report) -> Option<String> {
    let text = named.text.trim();
    let end = text.char_indices().nth(MAX_NAME).map_or(text.len(), |(end, _)| end);
    if end < text.len() {
        report.leave(named.place.clone(), "the name is longer than 100 characters; it is cut there");
    }
    match names::validate_name(&text[..end]) {
        Ok(name) => Some(name),
        Err(error) => {
            report.error(&named.place, error);
            None
        }
    }
}

/// Returns whether a tag of a key is the text of a key.
fn has_tag_of(key: &Key, digests: &HashSet<KeyDigest>) -> bool {
    let tags = key.policy.iter().flat_map(|policy| &policy.tags);
    tags.flat_map(|(name, value)| [name, value]).any(|text| digests.contains(&KeyDigest::of(text.as_bytes())))
}

/// The permissions that groups are by their names, without those that no permission can be made of.
pub(crate) fn sorted_permissions(groups: &[Named]) -> Vec<Permission> {
    let groups = groups.iter().filter(|group| &*group.text != ADMIN);
    let mut permissions: Vec<Permission> = groups.filter_map(|group| group.text.parse().ok()).collect();
    permissions.sort_unstable();
    permissions.dedup();
    permissions
}

/// The permissions that groups are, by their names; none when the user's are not set.
fn permissions(groups: &[Named], options: Options, report: &mut Report) -> Option<Vec<Permission>> {
    for group in groups {
        let place = || group.place.clone();
        if !options.permissions_from_groups {
            report.leave(place(), "the group has no counterpart; --permissions-from groups makes it a permission");
        } else if &*group.text == ADMIN {
            report
                .leave(place(), "a group of this name would administer the organization; give the permission yourself");
        } else {
            if let Err(error) = group.text.parse::<Permission>() {
                report.leave(place(), format!("the group makes no permission: {error}"));
            }
        }
    }
    options.permissions_from_groups.then(|| sorted_permissions(groups))
}

/// The limit of each key of a consumer, of that of the consumer.
fn consumer_limit(limits: &[Limit], keys: usize, report: &mut Report) -> Option<Quota> {
    let [limit] = limits else {
        for limit in limits {
            report.leave(limit.place.clone(), SEVERAL);
        }
        return None;
    };
    let reason = match (limit.scope, keys) {
        (_, 0) => "the limit is of a consumer without a key",
        (Scope::Consumer, 2..) => "the limit is one of several keys together; a key has a bucket of its own",
        _ => return Some(limit.quota),
    };
    report.leave(limit.place.clone(), reason);
    None
}

/// Gives keys a plan in the place of limits that many users have. Returns the plans.
pub(crate) fn share_limits(users: &mut [User]) -> BTreeMap<PlanName, Quota> {
    let mut sharing: BTreeMap<PlanName, (Quota, usize)> = BTreeMap::new();
    for user in &*users {
        let limits = user.keys.iter().filter_map(|key| Some((plan_name(key.limits?)?, key.limits?)));
        for (name, quota) in limits.collect::<BTreeMap<_, _>>() {
            sharing.entry(name).or_insert((quota, 0)).1 += 1;
        }
    }
    sharing.retain(|_, (_, users)| *users >= SHARED);
    for key in users.iter_mut().flat_map(|user| &mut user.keys) {
        key.plan = key.limits.and_then(plan_name).filter(|name| sharing.contains_key(name));
        key.limits = key.limits.filter(|_| key.plan.is_none());
    }
    sharing.into_iter().map(|(name, (quota, _))| (name, quota)).collect()
}

/// The name of a plan of these limits, such as `10-per-1m`; none when it is too long.
fn plan_name(Quota { requests, per, burst, .. }: Quota) -> Option<PlanName> {
    let mut name = format!("{requests}-per-{}", WithUnit::Duration(per));
    if burst != requests {
        let _ = write!(name, "-burst-{burst}");
    }
    name.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_part_is_made_of_any_text_and_of_no_two_the_same() {
        let texts = ["harry", "a b", "a%20b", "ada@example.com", "ada%40example.com", "\u{e4}", "<x>", "a,b"];
        let made: HashSet<String> = texts.iter().map(|text| local_part(text).into_owned()).collect();
        assert_eq!(made.len(), texts.len(), "{made:?}");
        for local in made {
            assert!(names::validate_email(&format!("{local}@{DOMAIN}")).is_ok(), "{local}");
        }
        assert_eq!(local_part("Ada B"), "ada%20b");
    }
}
