//! Keys that policies name: of agentgateway's configuration, and of objects of Kubernetes, whose keys are in Secrets.
//! Each is a record that the table reads.
//!
//! - Objects stand in lists, documents, or both, as `kubectl get … -o yaml` writes them. Their paths here are kind,
//!   namespace and name.
//! - A Secret counts when a `KongConsumer` or a policy names it, or selects it by its labels.

use std::collections::{HashMap, HashSet};

use data_encoding::BASE64;
use domain::secret::Secret;
use platform::settings::{Entry, Kind, Location, Node, read_documents};

use super::field::Field;
use super::options::Dialect;
use super::report::Report;
use super::table::{OTHER_CREDENTIAL, Record, Rules};

/// Blocks of policies that have keys, each with whether the value of a key may be JSON: of Envoy Gateway, agentgateway.
const POLICIES: [(&str, bool); 2] = [("spec.apiKeyAuth", false), ("spec.traffic.apiKeyAuthentication", true)];
const SELECTORS: [(&str, &str); 2] = [("secretSelector", "Secret"), ("configMapSelector", "ConfigMap")];
const MISSING: &str = "names no object of the file; put it into the file as well";
const UNNAMED: &str =
    "is named by no KongConsumer and no policy of the file; if it has keys, put that into the file as well";

/// A record, with its path.
pub(crate) type Found = (String, Node);

/// Reads the records of a text.
///
/// # Errors
/// The first error of syntax, with its place.
pub(crate) fn read(
    text: &str,
    dialect: Dialect,
    rules: &Rules,
    report: &mut Report,
) -> Result<Vec<Found>, (Location, String)> {
    let mut documents = Vec::new();
    read_documents(text, |node| documents.push(node))?;
    let documents = documents.iter().enumerate().map(|(index, node)| Field::item("", index, node));
    let documents: Vec<Field<'_>> = documents.filter(|document| !document.is_empty()).collect();
    let mut found = Vec::new();
    if dialect == Dialect::Agentgateway {
        for document in documents {
            read_configuration(&document.renamed(String::new()), rules, &mut found, report);
        }
        return Ok(found);
    }
    let mut objects = Vec::new();
    for document in documents {
        let listed = document.at("items").map_or_else(|| vec![document], |items| items.items(report));
        objects.extend(listed.into_iter().filter_map(|object| Object::of(object, report)));
    }
    let used = vec![false; objects.len()];
    let mut cluster = Cluster { objects: &objects, used, clients: HashMap::new(), found, rules, report };
    objects.iter().filter(|object| object.kind == "KongConsumer").for_each(|object| cluster.read_consumer(object));
    for (object, (path, is_json)) in objects.iter().flat_map(|object| POLICIES.map(|policy| (object, policy))) {
        if let Some(policy) = object.field.at(path) {
            cluster.read_policy(object, &policy, is_json);
        }
    }
    for (object, used) in cluster.objects.iter().zip(&cluster.used) {
        let is_opaque = object.field.at("type").is_none_or(|kind| kind.text() == Some("Opaque"));
        if object.kind == "Secret" && is_opaque && !used {
            cluster.report.leave(object.field.place(), UNNAMED);
        }
    }
    Ok(cluster.found)
}

/// Finds the keys of each policy `apiKey`, wherever it stands.
fn read_configuration(field: &Field<'_>, rules: &Rules, found: &mut Vec<Found>, report: &mut Report) {
    if let Some(keys) = field.at("apiKey.keys") {
        found.extend(keys.items(report).into_iter().map(|key| key.detached()));
        rules.leave_others(Record::Collection, &field.at("apiKey").expect("it has keys"), "", report);
    }
    let items = if field.is_list() { field.items(report) } else { Vec::new() };
    for inner in field.fields().map(|(_, inner)| inner).chain(items) {
        read_configuration(&inner, rules, found, report);
    }
}

struct Object<'a> {
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
    field: Field<'a>,
}

impl<'a> Object<'a> {
    fn of(field: Field<'a>, report: &mut Report) -> Option<Self> {
        let text = |path| field.at(path).and_then(|value| value.text());
        let (Some(kind), Some(name)) = (text("kind"), text("metadata.name")) else {
            report.error(&field.place(), "is no object of Kubernetes: it has no `kind`, or no name");
            return None;
        };
        let namespace = text("metadata.namespace").unwrap_or("default");
        let field = field.renamed(format!("{kind} {namespace}/{name}"));
        Some(Self { kind, namespace, name, field })
    }

    fn has_label(&self, name: &str, text: Option<&str>) -> bool {
        let labels = self.field.at("metadata.labels");
        labels.iter().flat_map(Field::fields).any(|(label, value)| label == name && value.text() == text)
    }

    /// The values of a Secret or a ConfigMap, decoded. As in Kubernetes, `stringData` comes before `data`.
    fn values(&self, report: &mut Report) -> Vec<(&'a str, Node)> {
        let mut values = Vec::new();
        for (path, is_encoded) in [("stringData", false), ("data", self.kind == "Secret")] {
            let block = self.field.at(path);
            for (name, value) in block.iter().flat_map(Field::fields) {
                let text = value.text().unwrap_or_default();
                let decoded = if is_encoded { BASE64.decode(text.as_bytes()).ok() } else { Some(text.into()) };
                let Some(text) = decoded.and_then(|bytes| String::from_utf8(bytes).ok()) else {
                    report.error(&value.place(), "is no base64 of a text");
                    continue;
                };
                if values.iter().all(|(other, _)| *other != name) {
                    values.push((name, scalar(value.place().at, text)));
                }
            }
        }
        values
    }
}

struct Cluster<'c, 'a> {
    objects: &'c [Object<'a>],
    /// Objects that keys were taken from, in the order of `objects`.
    used: Vec<bool>,
    /// Clients so far, each with the object of its keys; none of those of a consumer.
    clients: HashMap<&'a str, usize>,
    found: Vec<Found>,
    rules: &'c Rules,
    report: &'c mut Report,
}

impl<'a> Cluster<'_, 'a> {
    fn find(&mut self, kind: &str, namespace: &str, name: &Field<'_>) -> Option<usize> {
        let is_it =
            |object: &Object<'_>| (object.kind, object.namespace, Some(object.name)) == (kind, namespace, name.text());
        let index = self.objects.iter().position(is_it);
        if index.is_none() {
            self.report.error(&name.place(), MISSING);
        }
        index
    }

    /// Reads the keys and groups of a consumer of Kong's Ingress Controller.
    fn read_consumer(&mut self, object: &Object<'a>) {
        let field = &object.field;
        let mut lists =
            ["credentials", "consumerGroups"].map(|path| field.at(path).map(|list| list.items(self.report)));
        let groups = lists[1].take().unwrap_or_default();
        let mut groups: Vec<Node> = groups.iter().map(|group| group.detached().1).collect();
        let mut keys = Vec::new();
        for credential in lists[0].take().unwrap_or_default() {
            let Some(index) = self.find("Secret", object.namespace, &credential) else { continue };
            let (secret, values) = (&self.objects[index], self.objects[index].values(self.report));
            self.used[index] = true;
            if secret.has_label("konghq.com/credential", Some("key-auth")) {
                keys.push((secret, values));
            } else if secret.has_label("konghq.com/credential", Some("acl")) {
                groups.extend(values.into_iter().filter(|(name, _)| *name == "group").map(|(_, group)| group));
            } else {
                self.report.leave(credential.place(), OTHER_CREDENTIAL);
            }
        }
        let plugins = field.at("metadata.annotations");
        for (_, plugins) in plugins.iter().flat_map(Field::fields).filter(|(name, _)| *name == "konghq.com/plugins") {
            self.report.leave(plugins.place(), "plugins of a consumer have no counterpart; set limits of keys");
        }
        if keys.is_empty() {
            self.report.leave(field.place(), "the consumer has no key");
        }
        // Its name is no other client's.
        let name = field.at("username").or_else(|| field.at("custom_id")).and_then(|name| name.text());
        self.clients.extend(name.map(|name| (name, usize::MAX)));
        for (secret, values) in keys {
            let at = secret.field.place().at;
            let named = ["username", "custom_id"].into_iter();
            let named = named.filter_map(|name| Some((name, field.at(name)?.detached().1)));
            let groups = ("groups", Node { at, kind: Kind::Sequence(groups.clone()) });
            self.found.push((secret.field.path().to_owned(), block(at, named.chain(values).chain([groups]))));
        }
    }

    /// Reads the keys of a policy.
    fn read_policy(&mut self, object: &Object<'a>, policy: &Field<'a>, is_json: bool) {
        let mut named = Vec::new();
        let references = policy.at("credentialRefs").map(|list| list.items(self.report)).unwrap_or_default();
        for reference in references.into_iter().chain(policy.at("secretRef")) {
            let text = |path| reference.at(path).and_then(|value| value.text());
            let (kind, namespace) = (text("kind").unwrap_or("Secret"), text("namespace").unwrap_or(object.namespace));
            named.extend(self.find(kind, namespace, &reference.at("name").unwrap_or(reference)));
        }
        for (selector, kind) in SELECTORS {
            let Some(labels) = policy.at(selector).and_then(|selector| selector.at("matchLabels")) else { continue };
            let is_selected = |other: &Object<'_>| {
                (other.kind, other.namespace) == (kind, object.namespace)
                    && labels.fields().all(|(name, label)| other.has_label(name, label.text()))
            };
            let before = named.len();
            named.extend((0..self.objects.len()).filter(|index| is_selected(&self.objects[*index])));
            if named.len() == before {
                self.report.error(&labels.place(), MISSING);
            }
        }
        self.rules.leave_others(Record::Collection, policy, "", self.report);
        let mut seen = HashSet::new();
        for index in named {
            let is_known = std::mem::replace(&mut self.used[index], true);
            for (client, value) in self.objects[index].values(self.report) {
                if !seen.insert(client) && !is_json {
                    let place = self.objects[index].field.at("data").map_or(policy.place(), |data| data.place());
                    self.report.leave(place, "Envoy Gateway takes only the first key of a client");
                } else if !is_known {
                    self.read_value(index, client, value, is_json);
                }
            }
        }
    }

    /// Reads a key of a policy: a text, or JSON with a key or its digest.
    fn read_value(&mut self, index: usize, client: &'a str, value: Node, is_json: bool) {
        let object = &self.objects[index];
        let (at, path) = (value.at, format!("{}.{client}", object.field.path()));
        let place = Field::whole(&path, &value).place();
        let entries = match &value.kind {
            Kind::Scalar(text) if is_json && text.expose().trim_start().starts_with('{') => json(text.expose(), at),
            _ => Some(vec![Entry { key: "key".to_owned(), at, value }]),
        };
        let Some(mut entries) = entries else {
            return self.report.error(&place, "is no JSON with `key` or `keyHash`");
        };
        if object.kind == "ConfigMap" && entries.iter().any(|entry| entry.key == "key") {
            return self.report.leave(place, "agentgateway takes only digests from a ConfigMap");
        }
        let first = *self.clients.entry(client).or_insert(index);
        let mut name = client.to_owned();
        if first != index {
            name = format!("{}/{}/{client}", object.namespace, object.name);
            self.report.note(&place, format_args!("is the name of another client, too; this one is {name}"));
        }
        entries.insert(0, Entry { key: "client".to_owned(), at, value: scalar(at, name) });
        self.found.push((path, Node { at, kind: Kind::Mapping(entries) }));
    }
}

fn scalar(at: Location, text: String) -> Node {
    Node { at, kind: Kind::Scalar(Secret::new(text)) }
}

fn block<'n>(at: Location, values: impl Iterator<Item = (&'n str, Node)>) -> Node {
    let entries = values.map(|(key, value)| Entry { key: key.to_owned(), at: value.at, value });
    Node { at, kind: Kind::Mapping(entries.collect()) }
}

/// The members of a text of JSON, each at the place of the text; none when it is no such object.
fn json(text: &str, at: Location) -> Option<Vec<Entry>> {
    let mut documents = Vec::new();
    read_documents(text, |node| documents.push(node)).ok()?;
    let mut node = documents.pop()?;
    node.move_to(at);
    if let Kind::Mapping(entries) = node.kind { Some(entries) } else { None }
}
