//! The table of the dialects: a row has fields of a kind of record, and what they become, or the note why they
//! are not taken over. The order of rows is that of precedence, and of checks.
//!
//! - Kong: its declarative format, as `deck gateway dump` and `kong config db_export` write it, and by hand. Sources:
//!   `kong/templates/kong_yml.lua`, `kong/plugins/{key-auth,acl,rate-limiting}` of Kong 3, and the files below
//!   `tests/integration/testdata` of decK. Credentials, groups and plugins stand in their consumer, or beside it with a
//!   reference to its id or username.
//! - Apache APISIX: `apisix.yaml` of the standalone mode, the files of its declarative tool ADC, and the lists of the
//!   Admin API, also several of them in one file. Sources:
//!   `docs/en/latest/{admin-api,deployment-modes,terminology/credential}.md`, `apisix/schema_def.lua`,
//!   `apisix/plugins/{key-auth,limit-count,limit-req}` and `t/config-center-yaml/credentials.t` of APISIX 3.
//!   Credentials stand in their consumer, or beside it with an id such as `jack/credentials/one`.
//! - Unkey: keys by their hashes, as `keys.migrateKeys` takes them, or as lists of the API with `plaintext`. Sources:
//!   `svc/api/openapi/spec/{paths/v2/keys/migrateKeys,common}` and `docs/product/platform/apis/migrations/keys.mdx` of
//!   unkeyed/unkey. The keys with one `externalId` are those of one user. Without one, a key is its own user's.
//! - agentgateway, and objects of Kubernetes: records that `policies` finds. Sources:
//!   `internal/dataplane/kongstate` and `internal/admission/validation/consumers/credentials` of
//!   Kong/kubernetes-ingress-controller; `api/v1alpha1/api_key_auth_types.go` of envoyproxy/gateway;
//!   `crates/agentgateway/src/http/apikey.rs` and `controller/pkg/agentgateway/plugins/traffic_plugin.go` of
//!   agentgateway/agentgateway.

use std::str::FromStr;

use self::Becomes::*;
use self::Record::*;
use super::field::{Field, Named};
use super::options::Dialect::{self, *};
use super::report::Report;

/// Kind of record of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum Record {
    /// The file, and a record of APISIX behind its key in the store.
    File, Stored,
    /// A consumer; a group in it, or with a reference to it; a reference to both; a group with its consumers.
    Consumer, Group, Member, Collection,
    /// A key in its consumer, or with a reference to it; a credential of APISIX, which is a key when it has a block of
    /// `key-auth`, and this block; a key of Unkey, with what it says about its user; any key that may be in force.
    Key, Credential, Auth, Lone, Live,
    /// A plugin of Kong, and one of all requests.
    Plugin, Global,
    /// Limits: a window or a bucket, one that applies to each request, a number that a period renews, and one as a
    /// leaky bucket.
    Window, Applied, Renewal, Leaky,
}

/// Meaning of a field in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum Becomes {
    /// A list of the file, read item by item; a block of the file that has one; a block whose fields have rows.
    Items(Record), Enter, Within,
    /// It says nothing about what a request may do, or is read with another field.
    Nothing,
    /// It has no counterpart, with the note: when there is something in it, or in any case. Each of its items is an
    /// error.
    Left(&'static str), LeftAlways(&'static str), Refused(&'static str),
    /// Checks of a record, by any of the fields: without one it is an error, or is left; with one it is left, or has
    /// no effect.
    Required(&'static str), Needs(&'static str), Bars(&'static str), Off,
    /// Names and references.
    Username, Reference, CustomId, Owner, OwnUser, Name, Id, StoreKey, Value,
    /// Groups: lists, texts with several, and their members.
    Groups, GroupText, Members, Consumers,
    /// Keys, and what they have.
    Keys(Record), KeyAuth, Text, Hash, HashKind, Disabled, Ttl, Expires, Credits, Renewed, Daily, Tags, Labels,
    /// Limits, and what they have: seconds of a period (0: of no fixed length), numbers, and times. `Inexact` has the
    /// note of one that is taken over.
    Limits(Record), Period(u64), PerKey, Requests, Seconds, Millis, Interval, Refill, Rate, Burst,
    Inexact(&'static str),
}

/// A row. A field may be followed by the text that it must have, as in `enabled=false`: `*` for any, none when it must
/// be absent.
type Row = (Dialect, &'static [Record], &'static str, Becomes);

pub(crate) const OTHER_CREDENTIAL: &str = "it is a credential other than a key; create a key for its consumer";
const CONFIGURATION: &str = "it is a part of the configuration, not of the state; see docs/configuration.md";
const OF_GROUP: &str = "a plugin of a group has no counterpart; set limits of keys";
const NO_PLUGIN: &str = "the plugin `{}` has no counterpart";
pub(crate) const ENCRYPTED: &str = "is encrypted, and no request presents it as it is; write the key itself";
const OF_ONE_ROUTE: &str = "the limit is of one service, route or group; those of keys are of all their requests";
const SEVERAL_COUNTED: &str = "there are several limits at once, or one of several consumers; a key has one bucket";

#[rustfmt::skip]
const TABLE: &[Row] = &[
    (Kong, &[File], "consumers", Items(Consumer)),
    (Kong, &[File], "keyauth_credentials", Items(Key)),
    (Kong, &[File, Consumer], "keyauth_enc_credentials", Refused(ENCRYPTED)),
    (Kong, &[File], "acls", Items(Group)),
    (Kong, &[File], "plugins", Items(Plugin)),
    (Kong, &[File], "consumer_groups", Items(Collection)),
    (Kong, &[File], "consumer_group_consumers", Items(Member)),
    (Kong, &[File], "_*", Nothing),
    (Kong, &[File, Consumer, Key, Collection], "basicauth_credentials hmacauth_credentials jwt_secrets \
        oauth2_credentials mtls_auth_credentials", Left(OTHER_CREDENTIAL)),
    (Kong, &[File, Consumer, Key, Collection], "services routes upstreams targets certificates ca_certificates snis",
        Left(CONFIGURATION)),
    (Kong, &[Key, Collection], "plugins", Left(OF_GROUP)),
    (Kong, &[Consumer], "username", Username),
    (Kong, &[Consumer], "username id", Reference),
    (Kong, &[Consumer], "custom_id", CustomId),
    (Kong, &[Consumer], "keyauth_credentials", Keys(Key)),
    (Kong, &[Consumer], "acls groups", Groups),
    (Kong, &[Consumer], "plugins", Limits(Plugin)),
    (Kong, &[Consumer, Key, Collection], "id tags created_at updated_at consumer name", Nothing),
    (Kong, &[Key], "key",
        Required("has no key: Kong makes one when it reads the file; write down the one that it has made")),
    (Kong, &[Key], "key", Text),
    (Kong, &[Key], "ttl", Ttl),
    (Kong, &[Key], "tags", Tags),
    (Kong, &[Key, Group, Member, Plugin], "consumer consumer.id consumer.username consumer.name", Owner),
    (Kong, &[Group], "group name", Name),
    (Kong, &[Member], "consumer_group consumer_group.id consumer_group.username consumer_group.name", Name),
    (Kong, &[Member], "username id", Reference),
    (Kong, &[Collection], "name=*", Required("has no name")),
    (Kong, &[Collection, Plugin, Global], "name", Name),
    (Kong, &[Collection], "id", Id),
    (Kong, &[Collection], "consumers", Members),
    (Kong, &[Global], "consumer name=key-auth",
        Needs("the plugin `{}` of all requests is a part of the configuration")),
    (Kong, &[Global], "consumer",
        Needs("the plugin `key-auth` is a part of the configuration: list its `key_names` (`apikey` when it has \
            none) in `credentials: { headers: […] }`")),
    (Kong, &[Plugin], "enabled=false", Off),
    (Kong, &[Plugin], "name=rate-limiting", Needs(NO_PLUGIN)),
    (Kong, &[Plugin], "service=", Needs(OF_ONE_ROUTE)),
    (Kong, &[Plugin], "route=", Needs(OF_ONE_ROUTE)),
    (Kong, &[Plugin], "consumer_group=", Needs(OF_ONE_ROUTE)),
    (Kong, &[Plugin], "_config=", Needs(OF_ONE_ROUTE)),
    (Kong, &[Plugin], "config", Needs("the limit has no number")),
    (Kong, &[Plugin], "config.limit_by= config.limit_by=consumer config.limit_by=credential",
        Needs("the limit is not counted by consumer or credential")),
    (Kong, &[Plugin], "config.limit_by=credential", PerKey),
    (Kong, &[Plugin], "config.second", Period(1)),
    (Kong, &[Plugin], "config.minute", Period(60)),
    (Kong, &[Plugin], "config.hour", Period(3600)),
    (Kong, &[Plugin], "config.day", Period(86400)),
    (Kong, &[Plugin], "config.month config.year", Period(0)),

    (Apisix, &[File], "consumers list node.nodes", Items(Consumer)),
    (Apisix, &[File], "credentials", Items(Credential)),
    (Apisix, &[File], "consumer_groups", Items(Collection)),
    (Apisix, &[File], "node", Enter),
    (Apisix, &[File], "total action count node.dir node.key has_more", Nothing),
    (Apisix, &[File], "routes services upstreams ssls global_rules plugin_configs plugin_metadata stream_routes protos",
        Left(CONFIGURATION)),
    (Apisix, &[Stored], "value", Value),
    (Apisix, &[Stored], "key", StoreKey),
    (Apisix, &[Stored], "id", Id),
    (Apisix, &[Consumer], "username=*", Required("has no username")),
    (Apisix, &[Consumer], "username", Username),
    (Apisix, &[Consumer], "username", Reference),
    (Apisix, &[Consumer], "labels.custom_id", CustomId),
    (Apisix, &[Consumer], "group_id labels.group labels.groups", GroupText),
    (Apisix, &[Consumer], "labels plugins", Within),
    (Apisix, &[Consumer], "credentials", Keys(Credential)),
    (Apisix, &[Consumer], "plugins.key-auth", KeyAuth),
    (Apisix, &[Consumer], "plugins.limit-count", Limits(Window)),
    (Apisix, &[Consumer], "plugins.limit-req", Limits(Leaky)),
    (Apisix, &[Consumer], "plugins.basic-auth plugins.jwt-auth plugins.hmac-auth plugins.jwe-decrypt \
        plugins.wolf-rbac plugins.ldap-auth", LeftAlways(OTHER_CREDENTIAL)),
    (Apisix, &[Consumer], "plugins.*", LeftAlways(NO_PLUGIN)),
    (Apisix, &[Consumer, Collection], "id name desc description create_time update_time username", Nothing),
    (Apisix, &[Credential], "plugins.key-auth type=key-auth", Needs(OTHER_CREDENTIAL)),
    (Apisix, &[Credential], "plugins.key-auth config", Needs(OTHER_CREDENTIAL)),
    (Apisix, &[Credential], "plugins.key-auth config", KeyAuth),
    (Apisix, &[Credential], "consumer consumer_name username", Owner),
    (Apisix, &[Credential, Collection], "id name", Name),
    (Apisix, &[Credential], "labels", Labels),
    (Apisix, &[Auth], "key", Required("has no key")),
    (Apisix, &[Auth], "key", Text),
    (Apisix, &[Auth], "_meta.disable=true", Disabled),
    (Apisix, &[Collection], "consumers", Consumers),
    (Apisix, &[Collection], "labels", Nothing),
    (Apisix, &[Collection], "plugins", Left(OF_GROUP)),
    (Apisix, &[Window, Leaky], "_meta.disable=true", Off),
    (Apisix, &[Window], "rules=", Needs(SEVERAL_COUNTED)),
    (Apisix, &[Window], "group=", Needs(SEVERAL_COUNTED)),
    (Apisix, &[Window, Leaky], "key_type=constant key=consumer_name key=$consumer_name",
        Needs("the limit is not counted by consumer (`key: consumer_name`)")),
    (Apisix, &[Window, Leaky], "window_type=sliding",
        Inexact("the window slides: set `limits.key.strict: true` for no more than the limit in any window")),
    (Apisix, &[Window], "count", Requests),
    (Apisix, &[Window], "time_window", Seconds),
    (Apisix, &[Leaky], "nodelay=true", Needs("the limit delays requests (no `nodelay: true`); keygate refuses them")),
    (Apisix, &[Leaky], "rate", Rate),
    (Apisix, &[Leaky], "burst", Burst),

    (Unkey, &[File], ". keys data", Items(Lone)),
    (Unkey, &[File], "meta pagination total cursor hasMore migrationId apiId", Nothing),
    (Unkey, &[Lone], "hash plaintext",
        Required("has neither a hash nor a plaintext: a list of the API has it with `decrypt`")),
    (Unkey, &[Lone], "plaintext", Text),
    (Unkey, &[Lone], "hash.value hash", Hash),
    // The older API has it with the kind of hash.
    (Unkey, &[Lone], "hash.value= hash.variant=sha256_base64", HashKind),
    (Unkey, &[Live], "deletedAt", Bars("the key is deleted")),
    (Unkey, &[Lone], "externalId identity.externalId ownerId", Owner),
    (Unkey, &[Lone], "keyId id name", OwnUser),
    (Unkey, &[Lone], "name keyId", Name),
    (Unkey, &[Lone], "roles permissions", Groups),
    (Unkey, &[Group], "name", Name),
    (Unkey, &[Lone], "enabled=false", Disabled),
    (Unkey, &[Lone], "expires", Expires),
    (Unkey, &[Lone], "credits.remaining remaining", Credits),
    (Unkey, &[Lone], "credits.refill refill", Renewed),
    (Unkey, &[Renewal], "interval=daily interval=monthly",
        Needs("the credits are renewed neither each day nor each month")),
    (Unkey, &[Renewal], "interval=daily refillDay= refillDay=1",
        Needs("the credits are renewed on another day than the first of a month, with which a quota begins")),
    (Unkey, &[Renewal], "interval=daily", Daily),
    (Unkey, &[Renewal], "amount", Requests),
    (Unkey, &[Lone], "ratelimits", Limits(Applied)),
    (Unkey, &[Lone], "ratelimit", Limits(Window)),
    (Unkey, &[Lone], "identity", Within),
    (Unkey, &[Lone], "identity.ratelimits",
        Left("the limit is one of all keys of an identity; a key has a bucket of its own")),
    (Unkey, &[Lone], "meta", Left("the data of a key has no counterpart; no request shows it to an upstream")),
    (Unkey, &[Lone], "identity.* credits refill deletedAt start prefix byteLength createdAt updatedAt lastUsedAt \
        workspaceId apiId keyAuthId encrypted recoverable environment pendingMigrationId", Nothing),
    (Unkey, &[Applied], "autoApply=true",
        Needs("the limit applies where a verification names it (no `autoApply: true`)")),
    (Unkey, &[Applied, Window], "limit", Requests),
    (Unkey, &[Applied, Window], "duration", Millis),
    (Unkey, &[Applied, Window], "refillInterval", Interval),
    (Unkey, &[Applied, Window], "refillRate", Refill),

    (Agentgateway, &[Lone], "key keyHash", Required("has neither `key` nor `keyHash`")),
    (Agentgateway, &[Lone], "key", Text),
    (Agentgateway, &[Lone], "keyHash", Hash),
    (Agentgateway, &[Lone], "keyHash", HashKind),
    (Agentgateway, &[Lone], "client username custom_id metadata.name", Owner),
    (Agentgateway, &[Lone], "custom_id", CustomId),
    (Agentgateway, &[Lone], "groups", Groups),
    (Agentgateway, &[Lone], "ttl", Ttl),
    (Agentgateway, &[Lone], "metadata", Labels),
    (Agentgateway, &[Lone], "allowedModels",
        LeftAlways("the models that a key may use have no counterpart: give routes permissions")),
    (Agentgateway, &[Collection], "keys credentialRefs secretRef secretSelector configMapSelector mode", Nothing),
    (Agentgateway, &[Collection], "location extractFrom", Left("where keys come is a part of the configuration: list \
        their field in `credentials: { headers: […] }`, unless it is Authorization")),
    (Agentgateway, &[Collection], "forwardClientIDHeader sanitize", Left(CONFIGURATION)),
];

/// The rows of one dialect, by the kind of record.
pub(crate) struct Rules(Vec<Vec<Rule>>);

/// A row, with its fields apart: each with the text that it must have.
pub(crate) struct Rule {
    fields: Vec<(&'static str, Option<&'static str>)>,
    pub(crate) becomes: Becomes,
}

impl Rule {
    /// The first of its fields that an item has.
    pub(crate) fn find<'a>(&self, item: &Field<'a>) -> Option<Field<'a>> {
        self.fields.iter().find_map(|(path, _)| item.at(path))
    }

    /// Returns whether an item has one of its fields, each with its text.
    pub(crate) fn holds(&self, item: &Field<'_>) -> bool {
        self.fields.iter().any(|(path, text)| match (item.at(path), text) {
            (found, Some("")) => found.is_none(),
            (found, Some("*")) => found.is_some_and(|found| found.named().is_some()),
            (found, Some(text)) => found.is_some_and(|found| found.text() == Some(*text)),
            (found, None) => found.is_some(),
        })
    }
}

impl Rules {
    pub(crate) fn of(dialect: Dialect) -> Self {
        let with_text = |field: &'static str| match field.split_once('=') {
            Some((path, text)) => (path, Some(text)),
            None => (field, None),
        };
        let mut rules: Vec<Vec<Rule>> = (0..=Leaky as usize).map(|_| Vec::new()).collect();
        // The records of both have the same fields.
        let dialect = if dialect == Kubernetes { Agentgateway } else { dialect };
        for (_, records, fields, becomes) in TABLE.iter().filter(|(of, ..)| *of == dialect) {
            for record in *records {
                let fields = fields.split_whitespace().map(with_text).collect();
                rules[*record as usize].push(Rule { fields, becomes: *becomes });
            }
        }
        Self(rules)
    }

    pub(crate) fn rows(&self, record: Record) -> &[Rule] {
        &self.0[record as usize]
    }

    fn rows_of(&self, record: Record, becomes: Becomes) -> impl Iterator<Item = &Rule> {
        self.rows(record).iter().filter(move |rule| rule.becomes == becomes)
    }

    /// Finds the row of a field: its own, or one of all fields that begin so.
    pub(crate) fn becomes(&self, record: Record, path: &str) -> Option<Becomes> {
        let path = if path.is_empty() { "." } else { path };
        let is_start = |field: &str| field.strip_suffix('*').is_some_and(|start| path.starts_with(start));
        let find = |is_it: &dyn Fn(&str) -> bool| {
            self.rows(record).iter().find(|rule| rule.fields.iter().any(|(field, _)| is_it(field)))
        };
        find(&|field| field == path).or_else(|| find(&is_start)).map(|rule| rule.becomes)
    }

    /// The first field of an item that becomes this.
    pub(crate) fn get<'a>(&self, record: Record, item: &Field<'a>, becomes: Becomes) -> Option<Field<'a>> {
        self.rows_of(record, becomes).find_map(|rule| rule.find(item))
    }

    /// The first text of an item that becomes this.
    pub(crate) fn named(&self, record: Record, item: &Field<'_>, becomes: Becomes) -> Option<Named> {
        self.all_named(record, item, becomes).into_iter().next()
    }

    /// The texts of an item that become this.
    pub(crate) fn all_named(&self, record: Record, item: &Field<'_>, becomes: Becomes) -> Vec<Named> {
        let fields = self.rows_of(record, becomes).flat_map(|rule| &rule.fields);
        fields.filter_map(|(path, _)| item.at(path)?.named()).collect()
    }

    /// The items of all lists of an item that become this.
    pub(crate) fn items<'a>(
        &self,
        record: Record,
        item: &Field<'a>,
        becomes: Becomes,
        report: &mut Report,
    ) -> Vec<Field<'a>> {
        let fields = self.rows_of(record, becomes).flat_map(|rule| &rule.fields);
        fields.filter_map(|(path, _)| item.at(path)).flat_map(|list| list.items(report)).collect()
    }

    /// The number of an item that becomes this.
    pub(crate) fn number<T: FromStr>(&self, record: Record, item: &Field<'_>, becomes: Becomes) -> Option<T> {
        self.get(record, item, becomes)?.number()
    }

    /// Returns whether an item has a field that becomes this, with its text.
    pub(crate) fn holds(&self, record: Record, item: &Field<'_>, becomes: Becomes) -> bool {
        self.rows_of(record, becomes).any(|rule| rule.holds(item))
    }

    /// Does the checks of a record, in the order of the table, and reports the first that it fails.
    pub(crate) fn check(&self, record: Record, item: &Field<'_>, report: &mut Report) -> bool {
        let name = || self.get(record, item, Name).and_then(|name| name.text()).unwrap_or_default();
        for rule in self.rows(record) {
            match (rule.becomes, rule.holds(item)) {
                (Required(note), false) => report.error(&item.place(), note),
                (Needs(note), false) => report.leave(item.place(), note.replace("{}", name())),
                (Bars(note), true) => rule.find(item).iter().for_each(|field| report.leave(field.place(), note)),
                (Off, true) => {}
                _ => continue,
            }
            return false;
        }
        true
    }

    /// Leaves what has something in it and is not taken over.
    pub(crate) fn leave_others(&self, record: Record, item: &Field<'_>, prefix: &str, report: &mut Report) {
        for (key, field) in item.fields() {
            let becomes = self.becomes(record, &format!("{prefix}{key}"));
            match becomes {
                Some(Within) => self.leave_others(record, &field, &format!("{prefix}{key}."), report),
                Some(LeftAlways(note)) => report.leave(field.place(), note.replace("{}", key)),
                Some(Refused(note)) => {
                    for item in item.at(key).map(|list| list.items(report)).into_iter().flatten() {
                        report.error(&item.place(), note);
                    }
                }
                Some(KeyAuth) if field.is_empty() => report.error(&field.place(), "has no key"),
                // Within `plugins` it is one without settings, and not an absent list.
                Some(Limits(_)) if field.is_empty() && !prefix.is_empty() => {
                    report.leave(field.place(), "the limit has no number");
                }
                _ if key.starts_with('_') || field.is_empty() => {}
                Some(Left(note)) => report.leave(field.place(), note),
                Some(_) => {}
                None => report.leave(field.place(), format!("`{key}` has no counterpart")),
            }
        }
    }
}
