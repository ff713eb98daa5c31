//! Reads the records of a file by the rows of its dialect: consumers, with their keys, groups and limits.

use std::collections::HashMap;
use std::time::Duration;

use super::consumer::{Consumer, Key, Limit};
use super::field::{Field, Named};
use super::options::{Dialect, Options};
use super::report::{Place, Report};
use super::table::{Becomes, Record, Rules};
use super::{key_text, limit, placeholder, policies, users};
use domain::budget::{OwnBudget, Period};
use domain::clock::Micros;
use domain::key::KeyDigest;
use domain::quota::Quota;
use platform::settings::{Part, Treatment, read_lists};

/// Reason for which a key with a number of requests is left.
const COUNTED: &str = "the key has a number of requests left, or none, which no day or month renews: --keep-counted \
                       makes it a key without one";

/// Reason for which the rest of a period is left.
const PARTLY_SPENT: &str = "the quota of the key begins with nothing spent";

const NO_CONSUMER: &str = "names no consumer";

/// Reads the consumers of a text; `progress` is told the number of items so far, and of characters before the last one.
pub(crate) fn read(
    text: &str,
    options: Options,
    report: &mut Report,
    mut progress: impl FnMut(usize, usize),
) -> Vec<Consumer> {
    let rules = &Rules::of(options.dialect);
    let is_found = matches!(options.dialect, Dialect::Kubernetes | Dialect::Agentgateway);
    let found = if is_found { policies::read(text, options.dialect, rules, report) } else { Ok(Vec::new()) };
    let treat = |path: &str| match rules.becomes(Record::File, path) {
        Some(Becomes::Items(_) | Becomes::Refused(_)) => Treatment::Items,
        Some(Becomes::Enter) => Treatment::Enter,
        _ => Treatment::Skip,
    };
    let (consumers, by_reference) = (Vec::new(), HashMap::new());
    let mut reader =
        Reader { rules, options, report, consumers, by_reference, owned: Vec::new(), group_names: HashMap::new() };
    let mut items = 0;
    let take = |part: Part<'_>| match part {
        Part::Item { list, index, node, offset } => {
            items += 1;
            progress(items, offset);
            reader.take(&Field::item(list, index, &node), list);
        }
        Part::Skipped { path, at, values } if values > 0 => {
            let place = Place { at, path: path.into() };
            match rules.becomes(Record::File, path) {
                Some(Becomes::Left(reason)) => reader.report.leave(place, reason),
                Some(_) => {}
                None => reader.report.leave(place, format!("`{path}` has no counterpart")),
            }
        }
        Part::Skipped { .. } => {}
    };
    let read = match found {
        Ok(found) if is_found => {
            found.iter().for_each(|(path, node)| reader.take_lone_key(&Field::whole(path, node)));
            Ok(())
        }
        Ok(_) => read_lists(text, treat, take),
        Err(error) => Err(error),
    };
    match read {
        Ok(()) => reader.finish(),
        Err((at, what)) => {
            let line = text.lines().nth(at.line.saturating_sub(1)).unwrap_or_default();
            let advice = placeholder::advice(line).map(|advice| format!("; {advice}")).unwrap_or_default();
            reader.report.error(&Place { at, path: "syntax".into() }, format_args!("{what}{advice}"));
            Vec::new()
        }
    }
}

struct Reader<'r> {
    rules: &'r Rules,
    options: Options,
    report: &'r mut Report,
    consumers: Vec<Consumer>,
    /// Places in `consumers`, by all that refers to them.
    by_reference: HashMap<Box<str>, usize>,
    /// Records beside their consumers, with the references.
    owned: Vec<(Named, Owned)>,
    /// Names of groups by id.
    group_names: HashMap<Box<str>, Box<str>>,
}

/// Record of a consumer.
enum Owned {
    Key(Key),
    Group(Named),
    Limit(Limit),
}

impl Reader<'_> {
    fn take(&mut self, item: &Field<'_>, list: &str) {
        // The lists of APISIX's Admin API have the record behind its key in the store.
        let key = self.rules.named(Record::Stored, item, Becomes::StoreKey);
        let stored = self.rules.get(Record::Stored, item, Becomes::Value).zip(key);
        let id_of = |item: &Field<'_>| self.rules.named(Record::Stored, item, Becomes::Id);
        let (item, id) = match &stored {
            Some((value, key)) => {
                (value, key.text.split_once("/consumers/").map(|(_, id)| key.part(id)).or_else(|| id_of(value)))
            }
            None => (item, id_of(item)),
        };
        let (owner, name) = match id.as_ref().and_then(|id| Some((id, id.text.split_once("/credentials/")?))) {
            Some((id, (owner, name))) => (Some(id.part(owner)), Some(id.part(name))),
            None => (None, id),
        };
        let record = match self.rules.becomes(Record::File, list) {
            Some(Becomes::Items(Record::Consumer)) if owner.is_some() => Record::Credential,
            Some(Becomes::Items(record)) => record,
            Some(Becomes::Refused(note)) => return self.report.error(&item.place(), note),
            _ => unreachable!("only these lists are read"),
        };
        match record {
            Record::Consumer => self.take_consumer(item, None),
            Record::Collection => self.take_collection(item),
            Record::Lone => self.take_lone_key(item),
            Record::Group | Record::Member => {
                let group = self.rules.named(record, item, Becomes::Name);
                self.own(record, item, None, group.map(Owned::Group));
            }
            Record::Plugin if self.passes(Record::Global, item) => {
                let limit = self.passes(record, item).then(|| self.read_limit(record, item)).flatten();
                self.own(record, item, None, limit.map(Owned::Limit));
            }
            Record::Plugin => {}
            _ => self.take_key(record, item, owner, name),
        }
    }

    fn take_consumer(&mut self, item: &Field<'_>, group: Option<&Named>) {
        const CONSUMER: Record = Record::Consumer;
        if !self.passes(CONSUMER, item) {
            return;
        }
        let mut groups: Vec<Named> = group.cloned().into_iter().collect();
        groups.extend(self.read_groups(CONSUMER, item));
        let mut keys = Vec::new();
        if let Some(block) = self.rules.get(CONSUMER, item, Becomes::KeyAuth) {
            keys.extend(self.read_key(Record::Auth, &block));
        }
        for kind in [Record::Key, Record::Credential] {
            for key in self.rules.items(CONSUMER, item, Becomes::Keys(kind), self.report) {
                keys.extend(self.read_owned_key(kind, &key));
            }
        }
        let limits = self.limit_fields(CONSUMER, item);
        let limits = limits.iter().filter_map(|(kind, field)| self.read_limit(*kind, field)).collect();
        self.rules.leave_others(CONSUMER, item, "", self.report);
        let named = |becomes| self.rules.named(CONSUMER, item, becomes);
        let (username, custom_id) = (named(Becomes::Username), named(Becomes::CustomId));
        for reference in self.rules.all_named(CONSUMER, item, Becomes::Reference) {
            self.by_reference.insert(reference.text, self.consumers.len());
        }
        self.consumers.push(Consumer { place: item.place(), username, custom_id, groups, limits, keys });
    }

    /// Takes a group with its consumers, or with references to them.
    fn take_collection(&mut self, item: &Field<'_>) {
        let rules = self.rules;
        let group = rules.named(Record::Collection, item, Becomes::Name);
        if !self.passes(Record::Collection, item) {
            return;
        }
        for consumer in rules.items(Record::Collection, item, Becomes::Consumers, self.report) {
            self.take_consumer(&consumer, group.as_ref());
        }
        for member in rules.items(Record::Collection, item, Becomes::Members, self.report) {
            let reference = rules.named(Record::Member, &member, Becomes::Reference);
            self.own(Record::Member, &member, reference, group.clone().map(Owned::Group));
        }
        if let Some((id, group)) = rules.named(Record::Collection, item, Becomes::Id).zip(group) {
            self.group_names.insert(id.text, group.text);
        }
        self.rules.leave_others(Record::Collection, item, "", self.report);
    }

    /// Takes a key beside its consumer, whom its id names, or a field.
    fn take_key(&mut self, record: Record, item: &Field<'_>, owner: Option<Named>, name: Option<Named>) {
        let owner = owner.or_else(|| self.rules.named(record, item, Becomes::Owner));
        if owner.is_none() && record == Record::Credential {
            return self.report.error(&item.place(), NO_CONSUMER);
        }
        let key = self.read_owned_key(record, item);
        let key = key.map(|key| Key { name: name.or(key.name), ..key });
        self.own(record, item, owner, key.map(Owned::Key));
    }

    /// Keeps what belongs to a consumer: to this one, or to the one that the item names.
    fn own(&mut self, record: Record, item: &Field<'_>, owner: Option<Named>, owned: Option<Owned>) {
        let Some(owned) = owned else { return };
        match owner.or_else(|| self.rules.named(record, item, Becomes::Owner)) {
            Some(owner) => self.owned.push((owner, owned)),
            None => self.report.error(&item.place(), NO_CONSUMER),
        }
    }

    /// Takes a key whose consumer is in no list: that of the first key is found or made.
    fn take_lone_key(&mut self, item: &Field<'_>) {
        let Some(mut key) = self.read_key(Record::Lone, item) else { return };
        let external = self.rules.named(Record::Lone, item, Becomes::Owner);
        let own = || self.rules.named(Record::Lone, item, Becomes::OwnUser);
        // A key of agentgateway may have no name. The digest is the same in each conversion.
        let of_digest = || Named { place: item.place(), text: format!("key-{}", &key.digest.to_hex()[..8]).into() };
        let unnamed = (self.options.dialect == Dialect::Agentgateway).then(of_digest);
        let Some(owner) = external.clone().or_else(own).or(unnamed) else {
            let missing = "has no externalId, keyId or name: a key is of a user; give it one";
            return self.report.error(&item.place(), missing);
        };
        let known = self.by_reference.get(&owner.text).copied();
        if known.is_some() && external.is_none() {
            self.report.error(&owner.place, "is the name of two keys that have no externalId; give each one");
        }
        let groups = self.read_groups(Record::Lone, item);
        if self.options.permissions_from_groups {
            key.policy_mut().permissions = Some(users::sorted_permissions(&groups));
        }
        let index = known.unwrap_or(self.consumers.len());
        if known.is_none() {
            self.by_reference.insert(owner.text.clone(), index);
            let custom_id = self.rules.named(Record::Lone, item, Becomes::CustomId).or(external);
            let (place, username) = (owner.place.clone(), Some(owner));
            let (groups, limits, keys) = (Vec::new(), Vec::new(), Vec::new());
            self.consumers.push(Consumer { place, username, custom_id, groups, limits, keys });
        }
        // The user has the permissions of all of its keys, and each key its own of them.
        self.consumers[index].groups.extend(groups);
        self.consumers[index].keys.push(key);
    }

    /// Reads a key; one of APISIX stands in a block of its credential, which has its name.
    fn read_owned_key(&mut self, record: Record, item: &Field<'_>) -> Option<Key> {
        if record != Record::Credential {
            return self.read_key(record, item);
        }
        let block = self.passes(record, item).then(|| self.rules.get(record, item, Becomes::KeyAuth));
        let mut key = self.read_key(Record::Auth, &block.flatten()?)?;
        key.name = self.rules.named(record, item, Becomes::Name);
        self.add_tags(record, item, &mut key);
        Some(key)
    }

    fn read_key(&mut self, record: Record, item: &Field<'_>) -> Option<Key> {
        let rules = self.rules;
        let (place, digest) = self.passes(record, item).then(|| self.read_digest(record, item)).flatten()?;
        if !self.passes(Record::Live, item) {
            return None;
        }
        // In milliseconds.
        let expires = rules.get(record, item, Becomes::Expires);
        let expiry = expires.as_ref().and_then(Field::number).map(|ms: u64| Micros(ms.saturating_mul(1000)));
        if let Some(expires) = expires.filter(|_| expiry.is_none_or(|at| at <= self.options.now)) {
            self.report.leave(expires.place(), "the key has expired, or its expiry is no time in milliseconds");
            return None;
        }
        let credits = rules.get(record, item, Becomes::Credits);
        let budget = credits.as_ref().and_then(|left| self.read_budget(record, item, left));
        let counted = credits.filter(|left| left.text() == Some("0") || !self.options.keep_counted);
        if let Some(credits) = counted.filter(|_| budget.is_none()) {
            self.report.leave(credits.place(), COUNTED);
            return None;
        }
        let name = rules.named(record, item, Becomes::Name);
        let mut key = Key { place, digest, name, limit: self.read_own_limit(record, item), budget, policy: None };
        if rules.holds(record, item, Becomes::Disabled) {
            key.disable(self.options.now);
        }
        // Seconds that were left when the file was written; 0 stands for a key that does not expire.
        let ttl = rules.number::<u64>(record, item, Becomes::Ttl).filter(|ttl| *ttl > 0);
        let ttl = ttl.map(|ttl| self.options.now.after(Duration::from_secs(ttl)));
        if let Some(expires) = expiry.or(ttl) {
            key.expire(expires);
        }
        self.add_tags(record, item, &mut key);
        self.rules.leave_others(record, item, "", self.report);
        Some(key)
    }

    /// The digest of a key: its hash, or that of its text.
    fn read_digest(&mut self, record: Record, item: &Field<'_>) -> Option<(Place, KeyDigest)> {
        let text = self.rules.get(record, item, Becomes::Text);
        let plain = text.as_ref().and_then(|text| key_text::digest(text, self.options, self.report));
        let Some(hash) = self.rules.get(record, item, Becomes::Hash) else {
            let place = if record == Record::Lone { item.place() } else { text?.place() };
            return Some((place, plain?));
        };
        if !self.rules.holds(record, item, Becomes::HashKind) {
            let kind = "is a hash of another kind than sha256_base64; create a new key";
            self.report.error(&hash.place(), kind);
            return None;
        }
        let digest = key_text::decoded_digest(&hash, self.options, self.report)?;
        if plain.is_some_and(|plain| plain != digest) {
            let hash = item.at("hash").unwrap_or(hash);
            self.report.error(&hash.place(), "is not the hash of the plaintext beside it");
            return None;
        }
        Some((item.place(), digest))
    }

    fn add_tags(&mut self, record: Record, item: &Field<'_>, key: &mut Key) {
        for tag in self.rules.items(record, item, Becomes::Tags, self.report) {
            let text = tag.text().unwrap_or_default();
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            key.add_tag(tag.place(), name, value, self.report);
        }
        let labels = self.rules.get(record, item, Becomes::Labels);
        for text in labels.iter().filter(|labels| labels.is_list() || labels.text().is_some()) {
            self.report.leave(text.place(), "tags are a block of texts");
        }
        for (name, label) in labels.iter().flat_map(Field::fields) {
            match label.text() {
                Some(text) => key.add_tag(label.place(), name, text, self.report),
                None => self.report.leave(label.place(), "a tag is a text"),
            }
        }
    }

    /// Groups of lists, by their names, and those of texts, which commas separate.
    fn read_groups(&mut self, record: Record, item: &Field<'_>) -> Vec<Named> {
        let listed = self.rules.items(record, item, Becomes::Groups, self.report).into_iter();
        let listed = listed.filter_map(|group| match group.text().filter(|_| record == Record::Lone) {
            Some(text) => Some(Named { place: group.place(), text: text.into() }),
            None => self.rules.named(Record::Group, &group, Becomes::Name),
        });
        let mut groups: Vec<Named> = listed.collect();
        for label in self.rules.all_named(record, item, Becomes::GroupText) {
            let names = label.text.split(',').map(str::trim).filter(|name| !name.is_empty());
            groups.extend(names.map(|name| label.part(name)));
        }
        groups
    }

    /// The limits of an item that have an effect, each with its kind.
    fn limit_fields<'a>(&mut self, record: Record, item: &Field<'a>) -> Vec<(Record, Field<'a>)> {
        let mut found = Vec::new();
        for rule in self.rules.rows(record) {
            let Becomes::Limits(kind) = rule.becomes else { continue };
            let Some(field) = rule.find(item) else { continue };
            let is_list = matches!(kind, Record::Plugin | Record::Applied);
            let limits = if is_list { field.items(self.report) } else { vec![field] };
            found.extend(limits.into_iter().map(|limit| (kind, limit)));
        }
        found.retain(|(kind, limit)| self.passes(*kind, limit));
        found
    }

    fn read_limit(&mut self, record: Record, field: &Field<'_>) -> Option<Limit> {
        let place = field.place();
        match limit::read(self.rules, record, field) {
            Ok((quota, scope)) => {
                for rule in self.rules.rows(record) {
                    if let Becomes::Inexact(note) = rule.becomes
                        && rule.holds(field)
                    {
                        self.report.leave(place.clone(), note);
                    }
                }
                Some(Limit { place, quota, scope })
            }
            Err(reason) => {
                self.report.leave(place, reason);
                None
            }
        }
    }

    /// The limit of a key that applies to each of its requests.
    fn read_own_limit(&mut self, record: Record, item: &Field<'_>) -> Option<Quota> {
        let limits = self.limit_fields(record, item);
        if let [_, (_, second), ..] = &limits[..] {
            self.report.leave(second.place(), limit::SEVERAL);
            return None;
        }
        let (kind, field) = limits.first()?;
        self.read_limit(*kind, field).map(|limit| limit.quota)
    }

    /// The budget that stands for a number of requests which each day or month renews.
    fn read_budget(&mut self, record: Record, item: &Field<'_>, left: &Field<'_>) -> Option<OwnBudget> {
        const RENEWAL: Record = Record::Renewal;
        let renewed = self.rules.get(record, item, Becomes::Renewed).filter(|renewed| self.passes(RENEWAL, renewed))?;
        let per = if self.rules.holds(RENEWAL, &renewed, Becomes::Daily) { Period::Day } else { Period::Month };
        let units = self.rules.number(RENEWAL, &renewed, Becomes::Requests).unwrap_or_default();
        match OwnBudget::new(units, per) {
            Ok(budget) => {
                if left.number() != Some(units) {
                    self.report.leave(left.place(), PARTLY_SPENT);
                }
                Some(budget)
            }
            Err(error) => {
                self.report.leave(renewed.place(), error.to_string());
                None
            }
        }
    }

    fn passes(&mut self, record: Record, item: &Field<'_>) -> bool {
        self.rules.check(record, item, self.report)
    }

    /// Gives what stands beside a consumer to it.
    fn finish(mut self) -> Vec<Consumer> {
        let unknown = match self.options.dialect {
            Dialect::Apisix => "names no consumer of the file; put the consumers into it as well",
            _ => "is the id or the username of no consumer of the file",
        };
        for (reference, owned) in self.owned {
            let Some(index) = self.by_reference.get(&reference.text) else {
                self.report.error(&reference.place, unknown);
                continue;
            };
            let consumer = &mut self.consumers[*index];
            match owned {
                Owned::Key(key) => consumer.keys.push(key),
                Owned::Limit(limit) => consumer.limits.push(limit),
                Owned::Group(group) => {
                    let text = self.group_names.get(&group.text).unwrap_or(&group.text).clone();
                    consumer.groups.push(Named { text, ..group });
                }
            }
        }
        self.consumers
    }
}
