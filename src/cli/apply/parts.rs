//! A document in parts, each small enough for one call.
//!
//! - Records are in the order in which they are made: an organization, its persons, services, rules and keys. So each
//!   part can be applied when those before it are.
//! - A dry run of a part takes as applied what its records need of parts before it: their organization, their user, and
//!   the person who is responsible for that.

use std::collections::{BTreeSet, HashMap};
use std::mem::take;
use std::ops::Range;

use serde::Serialize;

use ::control::management::{Document, KeySpec, OrgSpec, RuleSpec, UserSpec};

/// Records of a part at most: a second, or a few, at a gateway whose disk or servers are slow.
const MAX_RECORDS: usize = 100;
/// Bytes of a part at most, with what it needs: a call has 64 KiB.
const MAX_BYTES: usize = 48 << 10;

/// A part of a document.
#[derive(Debug, Serialize)]
pub(super) struct Part {
    pub(super) organizations: Vec<OrgSpec>,
    /// Records that a dry run takes as applied before.
    given: Document,
}

/// A record of a document.
#[derive(Clone, Serialize)]
#[serde(untagged)]
enum Record {
    Org(OrgSpec),
    User(UserSpec),
    Rule(RuleSpec),
    Key(KeySpec),
}

/// The records of a document in their order.
#[derive(Default)]
struct Records {
    /// Each record behind the index of its organization among them.
    all: Vec<(usize, Record)>,
    /// Indices of users by their organization and their address or name.
    users: HashMap<(usize, String), usize>,
}

/// Cuts a document into parts.
pub(super) fn cut(document: Document) -> Vec<Part> {
    let records = Records::new(document);
    let mut parts = Vec::new();
    let (mut begin, mut bytes) = (0, 0);
    let mut counted = BTreeSet::new();
    for index in 0..records.all.len() {
        let length = |index| records.length(index);
        let needed = records.needs(index).filter(|needed| !counted.contains(needed)).map(length).sum::<usize>();
        if index - begin == MAX_RECORDS || (index > begin && bytes + needed + length(index) > MAX_BYTES) {
            parts.push(records.part(begin..index));
            (begin, bytes) = (index, 0);
            counted.clear();
        }
        let counts = records.needs(index).chain([index]).filter(|index| counted.insert(*index));
        bytes += counts.map(length).sum::<usize>();
    }
    parts.extend((begin < records.all.len()).then(|| records.part(begin..records.all.len())));
    parts
}

impl Records {
    fn new(document: Document) -> Self {
        let mut records = Self::default();
        for mut org in document.organizations {
            let users: Vec<UserSpec> = take(&mut org.users);
            let (persons, services): (Vec<_>, Vec<_>) = users.into_iter().partition(|user| user.service.is_none());
            let rules = take(&mut org.federation_rules).into_iter().map(Record::Rule);
            let keys = take(&mut org.keys).into_iter().map(Record::Key);
            let index = records.all.len();
            records.all.push((index, Record::Org(org)));
            for user in persons.into_iter().chain(services) {
                records.users.insert((index, user.handle()), records.all.len());
                records.all.push((index, Record::User(user)));
            }
            records.all.extend(rules.chain(keys).map(|record| (index, record)));
        }
        records
    }

    /// Indices of the records that must be there before one is made, as far as the document has them.
    fn needs(&self, index: usize) -> impl Iterator<Item = usize> {
        let (org, record) = &self.all[index];
        let find = |handle: &Option<String>| self.users.get(&(*org, handle.clone()?)).copied();
        let (user, service) = match record {
            Record::Org(_) => return [None; 3].into_iter().flatten(),
            Record::User(user) => (None, Some(user)),
            Record::Rule(RuleSpec { user, .. }) => self.user_and_spec(find(&Some(user.clone()))),
            Record::Key(KeySpec { user, .. }) => self.user_and_spec(find(user)),
        };
        let person = service.and_then(|service| find(&service.responsible));
        [Some(*org), person, user].into_iter().flatten()
    }

    fn user_and_spec(&self, index: Option<usize>) -> (Option<usize>, Option<&UserSpec>) {
        let spec = index.and_then(|index| match &self.all[index].1 {
            Record::User(user) => Some(user),
            _ => None,
        });
        (index, spec)
    }

    fn part(&self, range: Range<usize>) -> Part {
        let needed: BTreeSet<usize> = range.clone().flat_map(|index| self.needs(index)).collect();
        let given = self.assemble(needed.into_iter().filter(|index| !range.contains(index)));
        Part { organizations: self.assemble(range), given: Document { organizations: given } }
    }

    /// Organizations with these of their records.
    fn assemble(&self, indices: impl Iterator<Item = usize>) -> Vec<OrgSpec> {
        let mut orgs: Vec<(usize, OrgSpec)> = Vec::new();
        for index in indices {
            let (org, record) = &self.all[index];
            if orgs.last().is_none_or(|(last, _)| last != org)
                && let Record::Org(spec) = &self.all[*org].1
            {
                let name_alone = OrgSpec { name: spec.name.clone(), ..OrgSpec::default() };
                orgs.push((*org, if index == *org { spec.clone() } else { name_alone }));
            }
            match (orgs.last_mut(), record) {
                (Some((_, org)), Record::User(user)) => org.users.push(user.clone()),
                (Some((_, org)), Record::Rule(rule)) => org.federation_rules.push(rule.clone()),
                (Some((_, org)), Record::Key(key)) => org.keys.push(key.clone()),
                _ => {}
            }
        }
        orgs.into_iter().map(|(_, org)| org).collect()
    }

    /// Bytes of a record as it is sent.
    fn length(&self, index: usize) -> usize {
        serde_json::to_vec(&self.all[index].1).map_or(0, |json| json.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four hundred keys of a service whose person stands behind it in the file, and a large organization.
    #[test]
    fn parts_fit_into_a_call_and_have_what_their_records_need() {
        let keys: Vec<String> =
            (0..400).map(|number| format!("{{ sha256: '{number:064x}', name: k, user: nightly }}")).collect();
        let text = format!(
            "organizations:
  - name: acme
    concurrent: 7
    users: [{{ service: nightly, responsible: ada@example.com }}, {{ email: ada@example.com }}]
    keys: [{}]
  - name: globex
",
            keys.join(", ")
        );
        let parts = cut(serde_yaml::from_str(&text).unwrap());
        assert_eq!(parts.len(), 5);
        for (index, part) in parts.iter().enumerate() {
            let sent = serde_json::to_vec(part).unwrap();
            assert!(sent.len() <= 64 << 10, "part {index} has {} bytes", sent.len());
            let acme = &part.organizations[0];
            assert_eq!((&*acme.name, acme.concurrent), ("acme", (index == 0).then_some(Some(7))));
            match part.given.organizations.first() {
                None => assert_eq!((index, acme.users.len(), acme.keys.len()), (0, 2, 97)),
                Some(given) => {
                    let users: Vec<String> = given.users.iter().map(UserSpec::handle).collect();
                    assert_eq!(
                        (given.concurrent, users),
                        (Some(Some(7)), vec!["ada@example.com".into(), "nightly".into()])
                    );
                }
            }
        }
        let of_acme: usize = parts.iter().map(|part| part.organizations[0].keys.len()).sum();
        let last = parts.last().and_then(|part| part.organizations.last()).map(|org| &*org.name);
        assert_eq!((of_acme, last), (400, Some("globex")));
    }

    #[test]
    fn parts_of_large_records_have_few_of_them() {
        let permission = |number| format!("p{number}:{}", "x".repeat(40));
        let permissions: Vec<String> = (0..500).map(permission).collect();
        let user = |number| format!("{{ email: 'u{number}@example.com', permissions: [{}] }}", permissions.join(", "));
        let users: Vec<String> = (0..4).map(user).collect();
        let text = format!("organizations: [{{ name: acme, users: [{}] }}]", users.join(", "));
        let parts = cut(serde_yaml::from_str(&text).unwrap());
        assert!(parts.iter().all(|part| serde_json::to_vec(part).unwrap().len() <= 64 << 10));
        assert_eq!(parts.iter().map(|part| part.organizations[0].users.len()).collect::<Vec<_>>(), [2, 2]);
    }
}
