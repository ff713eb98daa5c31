//! The imports between the files of a crate, read from their syntax.
//!
//! A path that begins with `crate`, `self` or `super`, in a `use` or in an expression, leads to the file that *defines*
//! what it names: re-exports are followed. What a file only re-exports is no import of its own. Tests inside a file are
//! left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Item, Meta, Token, UseTree, Visibility};

/// A path of modules below the crate's root, and perhaps a name in the last of them.
type Segments = Vec<String>;

/// One module, which is one file.
struct Module {
    file: PathBuf,
    path: Segments,
    children: BTreeSet<String>,
    /// Names that the file defines.
    defined: BTreeSet<String>,
    /// Names that the file imports or re-exports, with what they stand for.
    named: BTreeMap<String, Segments>,
    /// Modules all of whose names it imports or re-exports.
    globs: Vec<Segments>,
    /// Paths in the code of the file, re-exports apart.
    used: Vec<Segments>,
}

/// The modules of the crate by their paths.
pub struct Imports {
    modules: BTreeMap<Segments, Module>,
}

impl Imports {
    /// Reads all modules of a crate, from the file of its root.
    pub fn of_crate(root: PathBuf) -> Self {
        let mut imports = Self { modules: BTreeMap::new() };
        imports.add(root, Vec::new());
        imports
    }

    /// Each file with the files it imports from. Paths are relative to the working directory.
    ///
    /// The module that a file lies in is left out: a type's `impl` blocks may stand in files below the one that defines
    /// it.
    pub fn edges(&self) -> BTreeMap<&Path, BTreeSet<&Path>> {
        let edges_of = |module: &Module| {
            let own: BTreeSet<&Path> = self.lineage(&module.path).collect();
            module.used.iter().filter_map(|path| self.file_of(path, 0)).filter(|file| !own.contains(file)).collect()
        };
        self.modules.values().map(|module| (module.file.as_path(), edges_of(module))).collect()
    }

    /// The file of a module, and those of all modules that it lies in.
    fn lineage<'a>(&'a self, path: &'a [String]) -> impl Iterator<Item = &'a Path> {
        (0..=path.len()).map(|length| self.modules[&path[..length]].file.as_path())
    }

    fn add(&mut self, file: PathBuf, path: Segments) {
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut module = Module {
            file,
            path: path.clone(),
            children: BTreeSet::new(),
            defined: BTreeSet::new(),
            named: BTreeMap::new(),
            globs: Vec::new(),
            used: Vec::new(),
        };
        module.read(&syntax.items);
        let children: Vec<_> = module.children.iter().map(|child| (module.child_file(child), child.clone())).collect();
        self.modules.insert(path.clone(), module);
        for (file, child) in children {
            self.add(file, [path.clone(), vec![child]].concat());
        }
    }

    /// The file that defines what a path names; none when it is not of this crate.
    fn file_of(&self, path: &[String], depth: usize) -> Option<&Path> {
        assert!(depth < 16, "re-exports of {path:?} lead in a circle");
        let mut at = Segments::new();
        for (number, segment) in path.iter().enumerate() {
            let module = &self.modules[&at];
            if module.children.contains(segment) {
                at.push(segment.clone());
                continue;
            }
            if module.defined.contains(segment) {
                return Some(&module.file);
            }
            let rest = &path[number + 1..];
            if let Some(target) = module.named.get(segment) {
                return self.file_of(&[target, rest].concat(), depth + 1);
            }
            let through = |glob: &Segments| {
                let target = [glob.as_slice(), &path[number..]].concat();
                self.file_of(&target, depth + 1).filter(|file| *file != self.modules[glob].file)
            };
            return module.globs.iter().find_map(through).or(Some(&module.file));
        }
        Some(&self.modules[&at].file)
    }
}

impl Module {
    /// Modules first, then imports, which may begin with a module's name, then the code, which may name imports.
    fn read(&mut self, items: &[Item]) {
        let items: Vec<&Item> = items.iter().filter(|item| !is_test(attributes(item))).collect();
        for item in &items {
            match item {
                Item::Mod(inner) if inner.content.is_none() => drop(self.children.insert(inner.ident.to_string())),
                item => self.defined.extend(name(item)),
            }
        }
        for item in &items {
            if let Item::Use(import) = item {
                self.read_use(&import.tree, &[], matches!(import.vis, Visibility::Inherited));
            }
        }
        items.iter().filter(|item| !matches!(item, Item::Use(_))).for_each(|item| Names(self).visit_item(item));
    }

    fn read_use(&mut self, tree: &UseTree, before: &[String], own: bool) {
        let with = |name: &dyn ToString| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.read_use(&path.tree, &with(&path.ident), own),
            UseTree::Name(name) if name.ident == "self" => self.import(before, before.last().cloned(), own),
            UseTree::Name(name) => self.import(&with(&name.ident), Some(name.ident.to_string()), own),
            UseTree::Rename(name) => self.import(&with(&name.ident), Some(name.rename.to_string()), own),
            UseTree::Glob(_) => self.globs.extend(self.absolute(before)),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.read_use(tree, before, own)),
        }
    }

    fn import(&mut self, path: &[String], name: Option<String>, own: bool) {
        let Some(path) = self.absolute(path) else { return };
        if own {
            self.used.push(path.clone());
        }
        self.named.extend(name.map(|name| (name, path)));
    }

    /// The path from the crate's root; none when it begins with the name of another crate.
    fn absolute(&self, path: &[String]) -> Option<Segments> {
        let first = path.first()?;
        match first.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([&self.path, &path[1..]].concat()),
            "super" => {
                let mut base = self.path.clone();
                let ups = path.iter().take_while(|segment| *segment == "super").count();
                base.truncate(base.len().checked_sub(ups).expect("the root has no parent"));
                Some([base.as_slice(), &path[ups..]].concat())
            }
            child if self.children.contains(child) => Some([&self.path, path].concat()),
            _ => None,
        }
    }

    fn child_file(&self, child: &str) -> PathBuf {
        let folder = match self.file.file_name().and_then(|name| name.to_str()) {
            Some("mod.rs" | "lib.rs" | "main.rs") => self.file.parent().expect("a file has a folder").to_owned(),
            _ => self.file.with_extension(""),
        };
        let file = folder.join(format!("{child}.rs"));
        if file.exists() { file } else { folder.join(child).join("mod.rs") }
    }
}

/// Collects the paths in the code of a module.
struct Names<'a>(&'a mut Module);

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        // A name that is imported or re-exported stands for its whole path.
        let whole = match self.0.named.get(&segments[0]) {
            Some(target) => Some([target, &segments[1..]].concat()),
            None => self.0.absolute(&segments),
        };
        self.0.used.extend(whole);
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        self.0.read_use(&import.tree, &[], true);
    }

    /// `pub(super)` is no use of the parent.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_item_mod(&mut self, inner: &'ast syn::ItemMod) {
        if !is_test(&inner.attrs) {
            visit::visit_item_mod(self, inner);
        }
    }

    /// The arguments of most macros are expressions with commas in between.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        if let Ok(arguments) = call.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated) {
            arguments.iter().for_each(|argument| Visit::visit_expr(self, argument));
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    let is_cfg_test = |attribute: &Attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    };
    attributes.iter().any(is_cfg_test)
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The name that an item defines in its module.
fn name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Mod(item) => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}
