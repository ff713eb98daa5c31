//! Kong's declarative format: what `deck gateway dump` and `kong config db_export` write, and what is written by hand.
//! Sources: `kong/templates/kong_yml.lua`, `kong/plugins/{key-auth,acl,rate-limiting}` of Kong 3, and the files below
//! `tests/integration/testdata` of decK.
//!
//! Credentials, groups and plugins stand in their consumer, or beside it with a reference to its id or username.

use std::collections::HashMap;
use std::time::Duration;

use super::consumer::{Consumer, Key, Limit, Named, Scope};
use super::field::Field;
use super::key_text;
use super::limit;
use super::placeholder;
use super::report::Report;
use super::source::{Options, Reader};
use domain::quota::Quota;
use platform::settings::Treatment;

const LISTS: [&str; 7] = [
    "consumers",
    "keyauth_credentials",
    "keyauth_enc_credentials",
    "acls",
    "plugins",
    "consumer_groups",
    "consumer_group_consumers",
];

const OTHER_CREDENTIAL: &str = "it is a credential other than a key; create a key for its consumer";

/// Reasons for which some values have no counterpart.
const REASONS: [(&str, &str); 13] = [
    ("basicauth_credentials", OTHER_CREDENTIAL),
    ("hmacauth_credentials", OTHER_CREDENTIAL),
    ("jwt_secrets", OTHER_CREDENTIAL),
    ("oauth2_credentials", OTHER_CREDENTIAL),
    ("mtls_auth_credentials", OTHER_CREDENTIAL),
    ("plugins", "a plugin of a group has no counterpart; set limits of keys"),
    ("services", CONFIGURATION),
    ("routes", CONFIGURATION),
    ("upstreams", CONFIGURATION),
    ("targets", CONFIGURATION),
    ("certificates", CONFIGURATION),
    ("ca_certificates", CONFIGURATION),
    ("snis", CONFIGURATION),
];

const CONFIGURATION: &str = "it is a part of the configuration, not of the state; see docs/configuration.md";

/// Values that say nothing about what a request may do.
const DESCRIPTIONS: [&str; 6] = ["id", "tags", "created_at", "updated_at", "consumer", "name"];

const PERIODS: [(&str, Option<u64>); 6] = [
    ("second", Some(1)),
    ("minute", Some(60)),
    ("hour", Some(3600)),
    ("day", Some(86400)),
    ("month", None),
    ("year", None),
];

/// Reader of a declarative file.
pub(super) struct Kong {
    options: Options,
    consumers: Vec<Consumer>,
    /// Places in `consumers`, by id and by username.
    by_reference: HashMap<Box<str>, usize>,
    /// Record beside its consumer, with the reference.
    owned: Vec<(Named, Owned)>,
    /// Names of groups by id.
    group_names: HashMap<Box<str>, Box<str>>,
}

/// Records of a consumer.
enum Owned {
    Key(Key),
    Group(Named),
    Limit(Limit),
}

impl Kong {
    pub(super) fn new(options: Options) -> Self {
        let consumers = Vec::new();
        let owned = Vec::new();
        Self { options, consumers, by_reference: HashMap::new(), owned, group_names: HashMap::new() }
    }

    fn take_consumer(&mut self, item: &Field<'_>, report: &mut Report) {
        let mut consumer = Consumer::new(item.place());
        consumer.username = item.named("username");
        consumer.custom_id = item.named("custom_id");
        for credential in item.list("keyauth_credentials", report) {
            consumer.keys.extend(self.read_key(&credential, report));
        }
        for encrypted in item.list("keyauth_enc_credentials", report) {
            report.error(&encrypted.place(), ENCRYPTED);
        }
        let groups = item.list("acls", report).into_iter().map(|acl| acl.named("group"));
        consumer.groups.extend(groups.flatten());
        let groups = item.list("groups", report).into_iter().map(|group| group.named("name"));
        consumer.groups.extend(groups.flatten());
        for plugin in item.list("plugins", report) {
            consumer.limits.extend(read_plugin(&plugin, report));
        }
        let known =
            ["username", "custom_id", "keyauth_credentials", "keyauth_enc_credentials", "acls", "groups", "plugins"];
        item.leave_others(&[&known[..], &DESCRIPTIONS].concat(), &REASONS, report);
        for reference in [item.text_of("username"), item.text_of("id")].into_iter().flatten() {
            self.by_reference.insert(reference.into(), self.consumers.len());
        }
        self.consumers.push(consumer);
    }

    fn read_key(&self, credential: &Field<'_>, report: &mut Report) -> Option<Key> {
        let Some(text) = credential.get("key") else {
            report.error(
                &credential.place(),
                "has no key: Kong makes one when it reads the file; write down the one that it has made",
            );
            return None;
        };
        let digest = key_text::digest(&text, reference_flaw, report)?;
        let mut key = key_text::key(text.place(), digest);
        // Seconds that were left when the file was written; 0 stands for a key that does not expire.
        if let Some(ttl) = credential.number::<u64>("ttl").filter(|ttl| *ttl > 0) {
            key.expire(self.options.now.after(Duration::from_secs(ttl)));
        }
        for tag in credential.list("tags", report) {
            let text = tag.text().unwrap_or_default();
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            key.add_tag(tag.place(), name, value, report);
        }
        credential.leave_others(&[&["key", "ttl"][..], &DESCRIPTIONS].concat(), &REASONS, report);
        Some(key)
    }

    /// Keeps what belongs to the consumer that the item names.
    fn own(&mut self, item: &Field<'_>, owned: Option<Owned>, report: &mut Report) {
        let Some(owned) = owned else { return };
        match reference(item, "consumer") {
            Some(consumer) => self.owned.push((consumer, owned)),
            None => report.error(&item.place(), "names no consumer"),
        }
    }

    fn take_group(&mut self, item: &Field<'_>, report: &mut Report) {
        let Some(name) = item.named("name") else { return report.error(&item.place(), "has no name") };
        if let Some(id) = item.text_of("id") {
            self.group_names.insert(id.into(), name.text.clone());
        }
        for member in item.list("consumers", report) {
            match member.named("username").or_else(|| member.named("id")) {
                Some(consumer) => self.owned.push((consumer, Owned::Group(name.clone()))),
                None => report.error(&member.place(), "names no consumer"),
            }
        }
        item.leave_others(&[&["consumers"][..], &DESCRIPTIONS].concat(), &REASONS, report);
    }
}

/// Chooses how the value at a path is read.
pub(super) fn treat(path: &str) -> Treatment {
    if LISTS.contains(&path) { Treatment::Items } else { Treatment::Skip }
}

/// Reason for which a value that is not read has no counterpart.
pub(super) fn reason(path: &str) -> Option<String> {
    if path.starts_with('_') {
        return None;
    }
    let reason = REASONS.iter().find(|(name, _)| *name == path).map(|(_, reason)| (*reason).to_owned());
    Some(reason.unwrap_or_else(|| format!("`{path}` has no counterpart")))
}

impl Reader for Kong {
    fn take(&mut self, item: Field<'_>, list: &str, report: &mut Report) {
        match list {
            "consumers" => self.take_consumer(&item, report),
            "keyauth_credentials" => {
                let key = self.read_key(&item, report).map(Owned::Key);
                self.own(&item, key, report);
            }
            "acls" => self.own(&item, item.named("group").map(Owned::Group), report),
            "consumer_group_consumers" => self.own(&item, reference(&item, "consumer_group").map(Owned::Group), report),
            "consumer_groups" => self.take_group(&item, report),
            "plugins" if item.get("consumer").is_some() => {
                let limit = read_plugin(&item, report).map(Owned::Limit);
                self.own(&item, limit, report);
            }
            "plugins" => report.leave(item.place(), global_plugin_reason(&item)),
            _ => report.error(&item.place(), ENCRYPTED),
        }
    }

    fn finish(mut self: Box<Self>, report: &mut Report) -> Vec<Consumer> {
        for (reference, owned) in std::mem::take(&mut self.owned) {
            let Some(index) = self.by_reference.get(&reference.text) else {
                report.error(&reference.place, "is the id or the username of no consumer of the file");
                continue;
            };
            let consumer = &mut self.consumers[*index];
            match owned {
                Owned::Key(key) => consumer.keys.push(key),
                Owned::Limit(limit) => consumer.limits.push(limit),
                Owned::Group(mut group) => {
                    if let Some(name) = self.group_names.get(&group.text) {
                        group.text.clone_from(name);
                    }
                    consumer.groups.push(group);
                }
            }
        }
        self.consumers
    }
}

const ENCRYPTED: &str = "is encrypted, and no request presents it as it is; write the key itself";

/// Reason for which a text is no key, but stands for one.
fn reference_flaw(text: &str) -> Option<&'static str> {
    if text.starts_with("{vault://") {
        return Some("is a reference to a vault; write the key itself");
    }
    if text.contains("${{") || text.starts_with("${env") {
        return Some(placeholder::OF_DECK);
    }
    text.starts_with("$ke$").then_some(ENCRYPTED)
}

/// The reference of an item to another one: a text, or a block with an id or a name.
fn reference(item: &Field<'_>, key: &str) -> Option<Named> {
    item.named(key).or_else(|| {
        let field = item.get(key)?;
        ["id", "username", "name"].iter().find_map(|name| field.named(name))
    })
}

fn plugin_reason(plugin: &Field<'_>, what: &str) -> String {
    format!("the plugin `{}` {what}", plugin.text_of("name").unwrap_or_default())
}

/// Treatment of a plugin of all requests.
fn global_plugin_reason(plugin: &Field<'_>) -> String {
    if plugin.text_of("name") != Some("key-auth") {
        return plugin_reason(plugin, "of all requests is a part of the configuration");
    }
    "the plugin `key-auth` is a part of the configuration: list its `key_names` (`apikey` when it has none) in \
     `credentials: { headers: […] }`"
        .to_owned()
}

/// The limit that a plugin of a consumer sets; none when it sets none, or is left.
fn read_plugin(plugin: &Field<'_>, report: &mut Report) -> Option<Limit> {
    if plugin.text_of("enabled") == Some("false") {
        return None;
    }
    let place = plugin.place();
    if plugin.text_of("name") != Some("rate-limiting") {
        report.leave(place, plugin_reason(plugin, "has no counterpart"));
        return None;
    }
    if ["service", "route", "consumer_group", "_config"].iter().any(|key| plugin.get(key).is_some()) {
        report.leave(place, "the limit is of one service, route or group; those of keys are of all their requests");
        return None;
    }
    match read_limit(plugin.get("config").as_ref()) {
        Ok((quota, scope)) => Some(Limit { place, quota, scope }),
        Err(reason) => {
            report.leave(place, reason);
            None
        }
    }
}

/// The limit of a configuration of `rate-limiting`, or why it has no counterpart.
fn read_limit(config: Option<&Field<'_>>) -> Result<(Quota, Scope), String> {
    let config = config.ok_or("the limit has no number")?;
    let scope = match config.text_of("limit_by").unwrap_or("consumer") {
        "consumer" => Scope::Consumer,
        "credential" => Scope::Key,
        _ => return Err("the limit is not counted by consumer or credential".to_owned()),
    };
    let mut given = PERIODS.iter().filter(|(name, _)| config.get(name).is_some());
    let (name, seconds) = given.next().ok_or("the limit has no number")?;
    if given.next().is_some() {
        return Err("there are several limits at once; a key has one bucket".to_owned());
    }
    let seconds = seconds.ok_or("a month and a year have no fixed length; a key has a limit in up to 366 days")?;
    Ok((limit::window(config.number(name), Some(Duration::from_secs(seconds)))?, scope))
}

#[cfg(test)]
mod tests {
    use platform::settings::{Kind, Part, Treatment, read_lists};

    use super::*;

    /// The limit of a configuration of `rate-limiting`.
    fn limit(config: &str) -> Result<(u32, u64, Scope), String> {
        let mut read = None;
        let text = format!("- config: {{ {config} }}\n");
        let parsed = read_lists(
            &text,
            |_| Treatment::Items,
            |part| {
                let Part::Item { node, .. } = part else { return };
                assert!(matches!(node.kind, Kind::Mapping(_)));
                let limit = read_limit(Field::item("", 0, &node).get("config").as_ref());
                read = Some(limit.map(|(quota, scope)| (quota.requests, quota.per.as_secs(), scope)));
            },
        );
        parsed.unwrap();
        read.unwrap()
    }

    #[test]
    fn limit_of_one_period_by_consumer_or_credential_is_read() {
        for (config, expected) in [
            ("second: 5", (5, 1, Scope::Consumer)),
            ("minute: 5.0, hour: null, limit_by: consumer", (5, 60, Scope::Consumer)),
            ("hour: 10000, limit_by: credential, policy: redis", (10_000, 3600, Scope::Key)),
            ("day: 1", (1, 86400, Scope::Consumer)),
        ] {
            assert_eq!(limit(config), Ok(expected), "{config}");
        }
        for (config, reason) in [
            ("second: 5, hour: 10000", "several limits"),
            ("month: 5", "no fixed length"),
            ("policy: local", "no number"),
            ("minute: 0.5", "no whole number"),
            ("minute: 5, limit_by: ip", "not counted by consumer"),
        ] {
            assert!(limit(config).is_err_and(|found| found.contains(reason)), "{config}");
        }
    }

    #[test]
    fn reference_is_told_from_a_key() {
        for reference in ["{vault://env/key}", "${{ env \"DECK_KEY\" }}", "$ke$1$-abc"] {
            assert!(reference_flaw(reference).is_some(), "{reference}");
        }
        for key in ["my-key", "{vault}", "$ke", "vault://env/key"] {
            assert!(reference_flaw(key).is_none(), "{key}");
        }
    }
}
