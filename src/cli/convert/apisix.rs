//! Apache APISIX: `apisix.yaml` of the standalone mode, the files of its declarative tool ADC, and the lists of the
//! Admin API, also several of them in one file.
//! Sources: `docs/en/latest/{admin-api,deployment-modes,terminology/credential}.md`, `apisix/schema_def.lua`,
//! `apisix/plugins/{key-auth,limit-count,limit-req}` and `t/config-center-yaml/credentials.t` of APISIX 3.
//!
//! Credentials stand in their consumer, or beside it with an id such as `jack/credentials/one`.

use std::collections::HashMap;
use std::time::Duration;

use data_encoding::BASE64;

use super::consumer::{Consumer, Key, Limit, Named, Scope};
use super::field::Field;
use super::key_text;
use super::limit;
use super::report::Report;
use super::source::{Options, Reader};
use domain::quota::Quota;
use platform::settings::Treatment;

const CONFIGURATION: [&str; 9] = [
    "routes",
    "services",
    "upstreams",
    "ssls",
    "global_rules",
    "plugin_configs",
    "plugin_metadata",
    "stream_routes",
    "protos",
];

/// Values around a list, which say nothing of their own.
const ENVELOPE: [&str; 6] = ["total", "action", "count", "node.dir", "node.key", "has_more"];

/// Values that say nothing about what a request may do.
const DESCRIPTIONS: [&str; 7] = ["id", "name", "desc", "description", "create_time", "update_time", "username"];

/// Reasons for which some values have no counterpart.
const REASONS: [(&str, &str); 1] = [("plugins", "a plugin of a group has no counterpart; set limits of keys")];

const OTHER_CREDENTIAL: &str = "it is a credential other than a key; create a key for its consumer";

/// Plugins that authenticate in another way.
const OTHER_AUTHENTICATION: [&str; 6] =
    ["basic-auth", "jwt-auth", "hmac-auth", "jwe-decrypt", "wolf-rbac", "ldap-auth"];

/// Reader of consumers.
pub(super) struct Apisix {
    options: Options,
    consumers: Vec<Consumer>,
    by_username: HashMap<Box<str>, usize>,
    /// Keys beside their consumers, with the usernames.
    owned: Vec<(Named, Key)>,
}

impl Apisix {
    pub(super) fn new(options: Options) -> Self {
        let by_username = HashMap::new();
        Self { options, consumers: Vec::new(), by_username, owned: Vec::new() }
    }

    fn take_consumer(&mut self, item: &Field<'_>, group: Option<&Named>, report: &mut Report) {
        let mut consumer = Consumer::new(item.place());
        consumer.username = item.named("username");
        let Some(username) = &consumer.username else { return report.error(&item.place(), "has no username") };
        self.by_username.insert(username.text.clone(), self.consumers.len());
        consumer.groups.extend(group.cloned().into_iter().chain(item.named("group_id")));
        if let Some(labels) = item.get("labels") {
            consumer.custom_id = labels.named("custom_id");
            consumer.groups.extend(["group", "groups"].iter().filter_map(|label| labels.named(label)).flat_map(split));
            labels.leave_others(&["custom_id", "group", "groups"], &[], report);
        }
        if let Some(plugins) = item.get("plugins") {
            self.read_plugins(&plugins, &mut consumer, report);
        }
        for credential in item.list("credentials", report) {
            consumer.keys.extend(self.read_credential(&credential, credential.named("id"), report));
        }
        item.leave_others(
            &[&["group_id", "labels", "plugins", "credentials"][..], &DESCRIPTIONS].concat(),
            &[],
            report,
        );
        self.consumers.push(consumer);
    }

    fn read_plugins(&self, plugins: &Field<'_>, consumer: &mut Consumer, report: &mut Report) {
        for (name, plugin) in plugins.fields() {
            match name {
                "key-auth" => consumer.keys.extend(self.read_key(&plugin, report)),
                "limit-count" | "limit-req" if is_disabled(&plugin) => {}
                "limit-count" => add_limit(&plugin, read_count(&plugin), consumer, report),
                "limit-req" => add_limit(&plugin, read_rate(&plugin), consumer, report),
                _ if OTHER_AUTHENTICATION.contains(&name) => report.leave(plugin.place(), OTHER_CREDENTIAL),
                _ => report.leave(plugin.place(), format!("the plugin `{name}` has no counterpart")),
            }
        }
    }

    /// Reads the key of a plugin `key-auth`, or of its configuration by ADC.
    fn read_key(&self, plugin: &Field<'_>, report: &mut Report) -> Option<Key> {
        let Some(text) = plugin.get("key") else {
            report.error(&plugin.place(), "has no key");
            return None;
        };
        let digest = key_text::digest(&text, |text| flaw(text, self.options.plain_keys), report)?;
        plugin.leave_others(&["key"], &[], report);
        let mut key = key_text::key(text.place(), digest);
        if is_disabled(plugin) {
            key.disable(self.options.now);
        }
        Some(key)
    }

    fn read_credential(&self, credential: &Field<'_>, id: Option<Named>, report: &mut Report) -> Option<Key> {
        let plugins = credential.get("plugins");
        let by_adc = credential.get("config").filter(|_| credential.text_of("type") == Some("key-auth"));
        let plugin = plugins.as_ref().and_then(|plugins| plugins.get("key-auth")).or(by_adc);
        let Some(plugin) = plugin else {
            report.leave(credential.place(), OTHER_CREDENTIAL);
            return None;
        };
        let mut key = self.read_key(&plugin, report)?;
        key.name = id.or_else(|| credential.named("name"));
        let labels = credential.get("labels");
        for (name, label) in labels.iter().flat_map(Field::fields) {
            key.add_tag(label.place(), name, label.text().unwrap_or_default(), report);
        }
        Some(key)
    }

    /// Takes a credential beside its consumer, whom the id names, or a field.
    fn own(&mut self, item: &Field<'_>, id: Option<Named>, report: &mut Report) {
        let split = id.as_ref().and_then(|id| id.text.split_once("/credentials/"));
        let (owner, name) = match (&id, split) {
            (Some(id), Some((owner, name))) => (Some(part(id, owner)), Some(part(id, name))),
            _ => (["consumer", "consumer_name", "username"].iter().find_map(|field| item.named(field)), id),
        };
        let Some(owner) = owner else { return report.error(&item.place(), "names no consumer") };
        let key = self.read_credential(item, name, report);
        self.owned.extend(key.map(|key| (owner, key)));
    }

    fn take_group(&mut self, item: &Field<'_>, report: &mut Report) {
        let group = item.named("id").or_else(|| item.named("name"));
        for consumer in item.list("consumers", report) {
            self.take_consumer(&consumer, group.as_ref(), report);
        }
        item.leave_others(&[&["consumers", "labels"][..], &DESCRIPTIONS].concat(), &REASONS, report);
    }
}

/// Chooses how the value at a path is read.
pub(super) fn treat(path: &str) -> Treatment {
    match path {
        "consumers" | "credentials" | "consumer_groups" | "list" | "node.nodes" => Treatment::Items,
        "node" => Treatment::Enter,
        _ => Treatment::Skip,
    }
}

/// Reason for which a value that is not read has no counterpart.
pub(super) fn reason(path: &str) -> Option<String> {
    if ENVELOPE.contains(&path) {
        return None;
    }
    let is_configuration = CONFIGURATION.contains(&path);
    let configuration = || "it is a part of the configuration, not of the state; see docs/configuration.md".to_owned();
    Some(if is_configuration { configuration() } else { format!("`{path}` has no counterpart") })
}

impl Reader for Apisix {
    fn take(&mut self, item: Field<'_>, list: &str, report: &mut Report) {
        // The lists of the Admin API have the record behind its key in the store.
        let stored = item.get("value").zip(item.named("key"));
        let (item, id) = match stored {
            Some((value, key)) => {
                let id = key.text.split_once("/consumers/").map(|(_, id)| part(&key, id));
                let id = id.or_else(|| value.named("id"));
                (value, id)
            }
            None => {
                let id = item.named("id");
                (item, id)
            }
        };
        let is_credential = id.as_ref().is_some_and(|id| id.text.contains("/credentials/"));
        match list {
            "consumer_groups" => self.take_group(&item, report),
            "credentials" => self.own(&item, id, report),
            _ if is_credential => self.own(&item, id, report),
            _ => self.take_consumer(&item, None, report),
        }
    }

    fn finish(mut self: Box<Self>, report: &mut Report) -> Vec<Consumer> {
        for (owner, key) in std::mem::take(&mut self.owned) {
            match self.by_username.get(&owner.text) {
                Some(index) => self.consumers[*index].keys.push(key),
                None => report.error(&owner.place, "names no consumer of the file; put the consumers into it as well"),
            }
        }
        self.consumers
    }
}

fn part(whole: &Named, text: &str) -> Named {
    Named { place: whole.place.clone(), text: text.into() }
}

/// The parts of a label with several values.
fn split(label: Named) -> Vec<Named> {
    let parts = label.text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|text| part(&label, text)).collect()
}

fn is_disabled(plugin: &Field<'_>) -> bool {
    plugin.get("_meta").is_some_and(|meta| meta.text_of("disable") == Some("true"))
}

/// Reason for which a text is no key, but stands for one.
fn flaw(text: &str, plain_keys: bool) -> Option<&'static str> {
    let has_scheme = |scheme: &str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    if has_scheme("$secret://") {
        return Some("is a reference to a secret manager; write the key itself");
    }
    if has_scheme("$env://") || text.starts_with("${{") {
        return Some("is a reference to an environment variable; write the key itself");
    }
    let encrypted = "looks encrypted (base64 of whole blocks of AES), as etcd has it; take the answer of the Admin \
                     API, or pass --plain-keys when clients present it as it is";
    (!plain_keys && looks_encrypted(text)).then_some(encrypted)
}

/// Returns whether a text is as APISIX stores encrypted fields: AES-CBC in base64. Hexadecimal keys and encoded text
/// are not taken for it.
fn looks_encrypted(text: &str) -> bool {
    let is_hex = text.bytes().all(|c| c.is_ascii_hexdigit());
    let decoded = BASE64.decode(text.as_bytes()).unwrap_or_default();
    let is_text = decoded.iter().all(|c| c.is_ascii_graphic() || *c == b' ');
    !is_hex && !decoded.is_empty() && decoded.len().is_multiple_of(16) && !is_text
}

fn add_limit(plugin: &Field<'_>, quota: Result<Quota, String>, consumer: &mut Consumer, report: &mut Report) {
    match quota {
        Ok(quota) => {
            let place = plugin.place();
            consumer.limits.push(Limit { place: place.clone(), quota, scope: Scope::Consumer });
            if plugin.text_of("window_type") == Some("sliding") {
                let exactness =
                    "the window slides: set `limits.key.strict: true` for no more than the limit in any window";
                report.leave(place, exactness);
            }
        }
        Err(reason) => report.leave(plugin.place(), reason),
    }
}

/// Checks that a limit counts the requests of its consumer, all of them together.
fn check_counted_by_consumer(plugin: &Field<'_>) -> Result<(), String> {
    let key = plugin.text_of("key").unwrap_or("remote_addr");
    let is_constant = plugin.text_of("key_type") == Some("constant");
    if is_constant || matches!(key, "consumer_name" | "$consumer_name") {
        Ok(())
    } else {
        Err("the limit is not counted by consumer (`key: consumer_name`)".to_owned())
    }
}

/// The limit of a plugin `limit-count`, or why it has no counterpart.
fn read_count(plugin: &Field<'_>) -> Result<Quota, String> {
    if plugin.get("rules").is_some() || plugin.get("group").is_some() {
        return Err("there are several limits at once, or one of several consumers; a key has one bucket".to_owned());
    }
    check_counted_by_consumer(plugin)?;
    limit::window(plugin.number("count"), plugin.number("time_window").map(Duration::from_secs))
}

/// The limit of a plugin `limit-req`, or why it has no counterpart.
fn read_rate(plugin: &Field<'_>) -> Result<Quota, String> {
    check_counted_by_consumer(plugin)?;
    if plugin.text_of("nodelay") != Some("true") {
        return Err("the limit delays requests (no `nodelay: true`); keygate refuses them".to_owned());
    }
    let rate = plugin.text_of("rate").and_then(|rate| rate.parse().ok()).ok_or("the limit has no rate")?;
    limit::leaky(rate, plugin.number("burst").ok_or("its burst is no whole number")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encrypted_field_is_told_from_a_key() {
        for encrypted in ["csdt8UPw76/SG+WlHBoFeg==", "mNh3RQ8mQbqGzwq7yXbJ0pJb5Cq0L0m9YVfVUQ1yJ0E="] {
            assert!(looks_encrypted(encrypted), "{encrypted}");
        }
        let hex = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for key in ["auth-one", "", "edd1c9f034335f136f87ad84b625c8f1", hex, "dXNlci0xMjM0NTY3ODkwMQ==", "AAECAwQ="] {
            assert!(!looks_encrypted(key), "{key}");
        }
    }

    #[test]
    fn reference_is_told_from_a_key() {
        for reference in ["$secret://vault/1/key", "$SECRET://x", "$env://KEY", "${{KEY}}"] {
            assert!(flaw(reference, true).is_some(), "{reference}");
        }
        for key in ["secret", "$env:/KEY", "\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}"] {
            assert!(flaw(key, false).is_none(), "{key}");
        }
    }
}
