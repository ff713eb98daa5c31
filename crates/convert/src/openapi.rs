//! Routes of an OpenAPI document: one for each operation of its `paths`. OpenAPI 3 and Swagger 2.0.
//!
//! - A more specific path is listed first, since the first route that matches is the one.
//! - What a route cannot express asks for more, never for less: of two operations that make one route, the public one
//!   is left out, and several scopes are one permission, which is given to whom all of them were.
//! - Only an operation with `security: []` of its own is public. A document that says nothing asks for a key.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use super::ConvertError;
use super::field::{Field, Named};
use super::report::{Place, Report};
use domain::identity::Permission;
use platform::settings::{Location, Node, Part, Treatment, read_lists};

/// Bytes of a route's name, and of a permission.
const MAX_NAME: usize = 100;
const MAX_PERMISSION: usize = 64;

const METHODS: [&str; 9] = ["head", "get", "post", "put", "patch", "delete", "options", "trace", "query"];
/// Parts of a path item that are no operations.
const OTHERS: [&str; 4] = ["parameters", "summary", "description", "servers"];
const NO_PERMISSION: &str = "no permission is named here, so every valid key may send such requests";

/// Part of an operation that its permission is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PermissionFrom {
    /// The first tag of an operation
    Tags,
    /// The scopes that `security` asks for
    Scopes,
}

/// A route of the configuration.
#[derive(Debug)]
pub struct Route {
    /// Name, unique.
    pub name: String,
    /// The only method.
    pub method: String,
    /// Path.
    pub path: String,
    /// True if requests need no key.
    pub is_public: bool,
    /// Permission.
    pub permission: Option<Permission>,
    place: Place,
}

/// Converts the operations of a document. Returns the routes, and what is left out.
///
/// # Errors
/// [`ConvertError::Flawed`].
pub fn routes(text: &str, from: Option<PermissionFrom>) -> Result<(Vec<Route>, Report), ConvertError> {
    let mut parts: HashMap<String, Node> = HashMap::new();
    let treat = |path: &str| match path {
        "openapi" | "swagger" | "basePath" | "servers" | "security" | "paths" => Treatment::Whole,
        _ => Treatment::Skip,
    };
    let read = read_lists(text, treat, |part| {
        if let Part::Item { list, node, .. } = part {
            parts.insert(list.to_owned(), node);
        }
    });
    let part = |name: &'static str| parts.get(name).map(|node| Field::whole(name, node));
    let mut reader = Reader { from, permissions: HashMap::new(), report: Report::default(), routes: Vec::new() };
    let at = Location { line: 1, column: 1 };
    match (read, part("openapi").or_else(|| part("swagger")), part("paths")) {
        (Err((at, what)), ..) => reader.report.error(&Place { at, path: "syntax".into() }, what),
        (Ok(()), Some(_), Some(paths)) => {
            let of_servers = part("servers").map(|servers| reader.prefix(&servers)).unwrap_or_default();
            let base = part("basePath").and_then(|path| path.named());
            let prefix = base.as_ref().map_or(&*of_servers, |base| &base.text);
            reader.read_paths(&paths, prefix, part("security").as_ref());
        }
        _ => reader.report.error(&Place { at, path: "paths".into() }, "this is no OpenAPI document with paths"),
    }
    reader.finish()
}

struct Reader {
    from: Option<PermissionFrom>,
    /// By the texts that they are made of.
    permissions: HashMap<Box<str>, Permission>,
    report: Report,
    routes: Vec<Route>,
}

impl Reader {
    fn read_paths(&mut self, paths: &Field<'_>, prefix: &str, security: Option<&Field<'_>>) {
        for (path, item) in paths.fields().filter(|(path, _)| !path.starts_with("x-")) {
            for (key, operation) in item.fields() {
                if METHODS.contains(&key) {
                    let servers = operation.at("servers").or_else(|| item.at("servers"));
                    let own = servers.map(|servers| self.prefix(&servers));
                    let written = format!("{}{path}", own.as_deref().unwrap_or(prefix).trim_end_matches('/'));
                    self.read_operation(key, &written, &operation, security);
                } else if key == "$ref" {
                    self.report.leave(operation.place(), "is a reference; put what it names here, as bundlers do");
                } else if !OTHERS.contains(&key) && !key.starts_with("x-") {
                    self.report.leave(operation.place(), format!("`{key}` is no method that is converted"));
                }
            }
        }
    }

    /// The path of the first server, before each path of an operation.
    fn prefix(&mut self, servers: &Field<'_>) -> String {
        let servers = servers.items(&mut self.report);
        let mut prefixes = servers.iter().filter_map(|server| Some((server.place(), server_path(server)?)));
        let first = prefixes.next().map(|(_, prefix)| prefix).unwrap_or_default();
        for (place, _) in prefixes.filter(|(_, other)| *other != first) {
            self.report.leave(place, "another server has another path before its operations; the first one's is taken");
        }
        first
    }

    fn read_operation(&mut self, method: &str, written: &str, operation: &Field<'_>, security: Option<&Field<'_>>) {
        let place = operation.place();
        let path = match route_path(written) {
            Ok(path) => path,
            Err(flaw) => return self.report.leave(place, flaw),
        };
        if path != written {
            self.report.note(&place, format_args!("a parameter of a route is a whole segment: {path}"));
        }
        let own = operation.at("security");
        let is_public = own.as_ref().is_some_and(Field::is_empty);
        if is_public {
            self.report.note(&place, "has `security: []`, so the route is public: `access: public`");
        }
        let asked = match self.from {
            Some(PermissionFrom::Tags) if !is_public => self.tag(operation),
            Some(PermissionFrom::Scopes) => own.as_ref().or(security).and_then(|security| self.scopes(security)),
            _ => None,
        };
        if asked.is_none() && self.from.is_some() && !is_public {
            self.report.leave(place.clone(), NO_PERMISSION);
        }
        let permission = asked.map(|asked| self.permission(&asked));
        let name = operation.at("operationId").and_then(|id| id.named()).map(|id| id.text.into_string());
        let name = name.unwrap_or_else(|| format!("{method}{}", path.replace(['{', '}'], "")));
        let method = method.to_ascii_uppercase();
        self.routes.push(Route { name: plain(&name, '.', MAX_NAME), method, path, is_public, permission, place });
    }

    fn tag(&mut self, operation: &Field<'_>) -> Option<Named> {
        let tags = operation.at("tags").map(|tags| tags.items(&mut self.report)).unwrap_or_default();
        if let Some(second) = tags.get(1) {
            self.report.leave(second.place(), "a route has one permission, here that of the first tag");
        }
        tags.first()?.named()
    }

    /// The scopes of the first alternative that has any, as one text.
    fn scopes(&mut self, security: &Field<'_>) -> Option<Named> {
        let mut chosen: Option<Named> = None;
        let alternatives = security.items(&mut self.report);
        for alternative in &alternatives {
            let schemes = alternative.fields().flat_map(|(_, scopes)| scopes.items(&mut self.report));
            let scopes: Vec<Named> = schemes.filter_map(|scope| scope.named()).collect();
            let text = scopes.iter().map(|scope| &*scope.text).collect::<Vec<_>>().join(" ");
            match scopes.first() {
                Some(scope) if chosen.is_none() => chosen = Some(scope.part(&text)),
                _ if alternatives.len() > 1 => {
                    self.report.leave(alternative.place(), "a route asks for one permission, not for one of several");
                }
                _ => {}
            }
            if let [_, second, ..] = &scopes[..] {
                self.report.note(&second.place, "several scopes at once are one permission, named by all");
            }
        }
        chosen
    }

    /// The permission of a text; no two texts have one.
    fn permission(&mut self, named: &Named) -> Permission {
        if let Some(permission) = self.permissions.get(&named.text) {
            return permission.clone();
        }
        let taken = self.permissions.values().map(ToString::to_string).collect();
        let name = free_name(&plain(&named.text.to_lowercase(), '-', MAX_PERMISSION), MAX_PERMISSION, &taken);
        if name != *named.text {
            self.report.note(&named.place, format_args!("becomes the permission {name}"));
        }
        let permission: Permission = name.parse().expect("it has the characters and the length of a permission");
        self.permissions.insert(named.text.clone(), permission.clone());
        permission
    }

    /// Orders the routes, and leaves out those that others take all requests of.
    fn finish(mut self) -> Result<(Vec<Route>, Report), ConvertError> {
        self.routes.sort_by(|a, b| order(a).cmp(&order(b)));
        let (mut kept, mut names): (Vec<Route>, BTreeSet<String>) = (Vec::new(), BTreeSet::new());
        for mut route in self.routes {
            let same = |first: &&Route| (shape(&first.path), &first.method) == (shape(&route.path), &route.method);
            if let Some(first) = kept.last().filter(same) {
                let line = first.place.at.line;
                if (first.is_public, &first.permission) == (route.is_public, &route.permission) {
                    self.report.note(&route.place, format_args!("has the route of the operation in line {line}"));
                } else {
                    let why = format!("makes the route of the operation in line {line}, which asks something else");
                    self.report.leave(route.place, why);
                }
                continue;
            }
            route.name = free_name(&route.name, MAX_NAME, &names);
            names.insert(route.name.clone());
            kept.push(route);
        }
        if self.report.errors() > 0 {
            Err(ConvertError::Flawed(Box::new(self.report)))
        } else {
            Ok((kept, self.report))
        }
    }
}

/// The place of a route in the list. HEAD is before GET, which includes it.
fn order(route: &Route) -> (Vec<(bool, &str)>, Reverse<bool>, &str, bool) {
    (shape(&route.path), Reverse(route.method == "HEAD"), &route.method, route.is_public)
}

/// The segments of a path, by which a literal one is before a parameter.
fn shape(path: &str) -> Vec<(bool, &str)> {
    let segment = |text| if str::starts_with(text, '{') { (true, "") } else { (false, text) };
    path.split('/').map(segment).collect()
}

/// The path of a server, with the default values of its variables; none without a URL.
fn server_path(server: &Field<'_>) -> Option<String> {
    let mut url = server.at("url")?.text()?.to_owned();
    for (name, variable) in server.at("variables").iter().flat_map(Field::fields) {
        let default = variable.at("default").and_then(|default| default.text()).unwrap_or_default();
        url = url.replace(&format!("{{{name}}}"), default);
    }
    let path = match url.split_once("//") {
        Some((_, rest)) => rest.split_once('/').map(|(_, path)| path),
        None => Some(url.trim_start_matches("./")),
    };
    let path = path.unwrap_or_default().trim_matches('/');
    Some(if path.is_empty() { String::new() } else { format!("/{path}") })
}

/// The path of a route: a segment with a parameter anywhere in it is one; or why no route has it.
fn route_path(written: &str) -> Result<String, &'static str> {
    if written.contains(['?', '#']) {
        return Err("a query or a fragment tells operations apart, and no route; write the path without it");
    }
    let last = written.matches('/').count();
    let mut path = String::new();
    for (number, segment) in written.split('/').enumerate().skip(1) {
        path.push('/');
        if segment.contains('{') {
            let name = plain(segment.replace(':', "}").trim_matches(['{', '}']), '-', MAX_NAME);
            path.push_str(&format!("{{{name}}}"));
        } else {
            let is_literal = |c: u8| c.is_ascii_alphanumeric() || b"-._~!$&'()+,=:@".contains(&c);
            let is_empty = segment.is_empty() && number < last;
            if is_empty || matches!(segment, "." | "..") || !segment.bytes().all(is_literal) {
                return Err("no route has such a path: a segment is empty, of dots, or has other characters");
            }
            path.push_str(segment);
        }
    }
    if path.is_empty() { Err("a path begins with `/`") } else { Ok(path) }
}

/// A name of the characters that routes and permissions have; each run of others becomes `other`.
fn plain(text: &str, other: char, max: usize) -> String {
    let mut name = String::new();
    for c in text.chars() {
        match c {
            _ if name.len() == max => break,
            _ if c.is_ascii_alphanumeric() || "._:-".contains(c) => name.push(c),
            _ if name.ends_with(other) => {}
            _ => name.push(other),
        }
    }
    name
}

/// The name, or with a number behind it, if it is taken.
fn free_name(name: &str, max: usize, taken: &BTreeSet<String>) -> String {
    let suffixes = std::iter::once(String::new()).chain((2..).map(|number| format!("-{number}")));
    let mut names = suffixes.map(|suffix| format!("{}{suffix}", &name[..name.len().min(max - suffix.len())]));
    names.find(|name| !taken.contains(name)).expect("there are more numbers than names")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_route_has_whole_segments() {
        for (written, expected) in [
            ("/", "/"),
            ("/a/{id}", "/a/{id}"),
            ("/a/{id}/", "/a/{id}/"),
            ("/compare/{base}...{head}", "/compare/{base-...-head}"),
            ("/v1/{name}:cancel", "/v1/{name-cancel}"),
            ("/{id}.json", "/{id-.json}"),
            ("/v1/{+name}", "/v1/{-name}"),
        ] {
            assert_eq!(route_path(written).as_deref(), Ok(expected), "{written}");
        }
        for flawed in ["", "a", "//a", "/a//b", "/../a", "/a?b=c", "/a#b", "/a b", "/a/*", "/%61", "/a;b", "/\u{e4}"] {
            assert!(route_path(flawed).is_err(), "{flawed}");
        }
    }

    #[test]
    fn names_are_cut_and_stay_unique() {
        assert_eq!(plain("repos/list", '.', 100), "repos.list");
        assert_eq!(plain("\u{e4}\u{e4} b", '-', 100), "-b");
        let taken: BTreeSet<String> = ["aaaa".to_owned(), "aa-2".to_owned()].into();
        assert_eq!(free_name("aaaa", 4, &taken), "aa-3");
        assert_eq!(free_name("b", 4, &taken), "b");
    }
}
