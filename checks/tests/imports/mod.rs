//! Import graph of a crate's files, read from its sources: `use` trees and paths in the code.

use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// A path from the root of a crate: modules, then an item of the last one.
type Path = Vec<String>;

/// A source file.
#[derive(Clone)]
pub(crate) struct Source {
    /// Path below the crate's `src`, for example "op/norm.rs".
    pub(crate) file: String,
    /// Content of the file.
    pub(crate) text: String,
}

/// The floors of a crate or of one of its folders: its layers of modules.
pub(crate) struct Floors {
    /// Folder with the sources, relative to the project.
    pub(crate) folder: &'static str,
    /// Module whose children have floors, for example "compare"; empty for the crate.
    pub(crate) module: &'static str,
    /// Names of modules, highest floor first. A module may import modules on its own floor or below.
    pub(crate) floors: &'static [&'static [&'static str]],
}

/// Returns the import errors of a crate: one line per upward import, per cycle, and per module without a
/// floor.
pub(crate) fn faults(sources: &[Source], floors: &Floors) -> Vec<String> {
    let graph = ImportGraph::read(sources);
    let scope: Path = floors.module.split('/').filter(|s| !s.is_empty()).map(String::from).collect();
    let unit = |file: &str| -> Option<String> {
        let module = module_of(file);
        module.strip_prefix(&scope[..]).and_then(|rest| rest.first()).cloned()
    };
    let floor = |unit: &str| floors.floors.iter().position(|floor| floor.contains(&unit));
    let mut faults = Vec::new();

    let units: BTreeSet<String> = graph.modules.values().filter_map(|file| unit(file)).collect();
    let listed = floors.floors.iter().copied().flatten().filter(|name| !units.contains(**name));
    faults.extend(listed.map(|name| format!("{name} has a floor and no file")));
    faults.extend(units.iter().filter(|u| floor(u).is_none()).map(|u| format!("{u} has no floor")));

    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in &graph.imports {
        let (Some(upper), Some(lower)) = (unit(from), unit(to)) else { continue };
        if floor(&upper) > floor(&lower) {
            faults.push(format!("{from} imports {to}, which is above it"));
        }
        edges.entry(from).or_default().insert(to);
    }
    faults.extend(circles(&edges));
    faults
}

/// Returns the import cycles between files, each cycle once.
fn circles(edges: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
    let mut found = Vec::new();
    let mut reported: BTreeSet<&str> = BTreeSet::new();
    for &start in edges.keys() {
        // The shortest path back to the start, breadth first.
        let mut paths = vec![vec![start]];
        let mut seen = BTreeSet::new();
        while let Some(path) = (!paths.is_empty()).then(|| paths.remove(0)) {
            for &next in edges.get(path[path.len() - 1]).into_iter().flatten() {
                if next == start && !path.iter().any(|file| reported.contains(file)) {
                    reported.extend(&path);
                    found.push(format!("a circle: {} -> {start}", path.join(" -> ")));
                } else if seen.insert(next) {
                    paths.push([&path[..], &[next]].concat());
                }
            }
        }
    }
    found
}

/// Returns the module of a file: `op/norm.rs` is `op::norm`, `op/mod.rs` is `op`, `lib.rs` the root.
fn module_of(file: &str) -> Path {
    let mut path: Path = file.trim_end_matches(".rs").split('/').map(String::from).collect();
    if path.last().is_some_and(|last| last == "mod" || path.len() == 1 && last == "lib") {
        path.pop();
    }
    path
}

/// The files of a crate and their imports. Excludes tests, and imports between a module and one that it
/// contains.
struct ImportGraph {
    modules: BTreeMap<Path, String>,
    imports: BTreeSet<(String, String)>,
}

impl ImportGraph {
    fn read(sources: &[Source]) -> ImportGraph {
        let mut modules: BTreeMap<Path, String> =
            sources.iter().map(|s| (module_of(&s.file), s.file.clone())).collect();
        let known: BTreeSet<Path> = modules.keys().cloned().collect();
        let readers: Vec<Arc<Found>> = sources.iter().map(|source| found(source, &known)).collect();
        let tests: BTreeSet<&Path> = readers.iter().flat_map(|r| &r.tests).collect();
        let is_test = |module: &Path| tests.iter().any(|test| module.starts_with(test));
        modules.retain(|module, _| !is_test(module));
        let names: BTreeMap<Path, Path> = readers.iter().flat_map(|r| r.names.clone()).collect();
        let mut imports = BTreeSet::new();
        for (reader, source) in readers.iter().zip(sources) {
            let from = module_of(&source.file);
            for path in reader.mentioned.iter().filter(|_| !is_test(&from)) {
                let to = target(path, &modules, &names, 0);
                if !from.starts_with(&to) && !to.starts_with(&from) {
                    imports.insert((source.file.clone(), modules[&to].clone()));
                }
            }
        }
        ImportGraph { modules, imports }
    }
}

/// Returns the module that defines the item of a path, resolving re-exported names.
fn target(
    path: &[String],
    modules: &BTreeMap<Path, String>,
    names: &BTreeMap<Path, Path>,
    depth: usize,
) -> Path {
    let module = (0..=path.len()).rev().map(|n| &path[..n]).find(|part| modules.contains_key(*part));
    let module = module.expect("every crate has a root");
    match path.get(..=module.len()).and_then(|name| names.get(name)) {
        // Limits cycles of names, which are possible in sources that do not compile.
        Some(elsewhere) if depth < 16 => {
            let entire = [&elsewhere[..], &path[module.len() + 1..]].concat();
            target(&entire, modules, names, depth + 1)
        }
        _ => module.to_vec(),
    }
}

/// Imports, names and tests of a file.
#[derive(Default)]
struct Found {
    /// Paths mentioned in code or in a `use`.
    mentioned: BTreeSet<Path>,
    /// Names that a `use` defines in a module, and their targets.
    names: BTreeMap<Path, Path>,
    /// Test modules.
    tests: Vec<Path>,
}

/// A file, its text and the modules of its crate.
type Key = (String, String, BTreeSet<Path>);

/// Returns what is found in a file. A file is parsed once for all floors that it has.
fn found(source: &Source, known: &BTreeSet<Path>) -> Arc<Found> {
    static READ: Mutex<BTreeMap<Key, Arc<Found>>> = Mutex::new(BTreeMap::new());
    let read = || READ.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (source.file.clone(), source.text.clone(), known.clone());
    if let Some(found) = read().get(&key) {
        return Arc::clone(found);
    }
    let parsed = syn::parse_file(&source.text).unwrap_or_else(|e| panic!("{}: {e}", source.file));
    let mut reader = Reader { known, here: module_of(&source.file), found: Found::default() };
    reader.visit_file(&parsed);
    let found = Arc::new(reader.found);
    read().insert(key, Arc::clone(&found));
    found
}

/// Parser of a file.
struct Reader<'a> {
    known: &'a BTreeSet<Path>,
    /// The current module: that of the file, or one inside it.
    here: Path,
    found: Found,
}

impl Reader<'_> {
    /// Returns the path from the crate's root; `None` if it leaves the crate or is relative to an item inside
    /// a module.
    fn absolute(&self, path: &[String]) -> Option<Path> {
        let mut base = self.here.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => return Some(path[1..].to_vec()),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|s| s == "super") {
                    base.pop()?;
                    rest = &rest[1..];
                }
            }
            first if !self.known.contains(&[&base[..], &[first.to_string()]].concat()) => return None,
            _ => {}
        }
        base.extend_from_slice(rest);
        Some(base)
    }

    fn mention(&mut self, path: &[String]) {
        self.found.mentioned.extend(self.absolute(path));
    }

    fn follow(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.follow(&path.tree, &with(&path.ident)),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.follow(tree, before)),
            UseTree::Glob(_) => self.mention(before),
            UseTree::Name(name) if name.ident == "self" => self.mention(before),
            UseTree::Name(name) => self.bind(&with(&name.ident), &name.ident),
            UseTree::Rename(name) => self.bind(&with(&name.ident), &name.rename),
        }
    }

    fn bind(&mut self, path: &[String], name: &syn::Ident) {
        self.mention(path);
        if let Some(path) = self.absolute(path) {
            self.found.names.insert([&self.here[..], &[name.to_string()]].concat(), path);
        }
    }

    /// Collects paths from the unparsed tokens of a macro.
    fn scan(&mut self, tokens: TokenStream) {
        let (mut path, mut colons) = (Path::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Punct(p) if p.as_char() == ':' && !path.is_empty() => colons += 1,
                TokenTree::Ident(name) if colons == 2 => {
                    path.push(name.to_string());
                    colons = 0;
                }
                other => {
                    self.mention_rooted(&std::mem::take(&mut path));
                    colons = 0;
                    match other {
                        TokenTree::Ident(name) => path.push(name.to_string()),
                        TokenTree::Group(group) => self.scan(group.stream()),
                        _ => {}
                    }
                }
            }
        }
        self.mention_rooted(&path);
    }

    /// Records a path in the code if it starts with `crate`, `self` or `super`; other paths depend on a
    /// `use`, which is recorded.
    fn mention_rooted(&mut self, path: &[String]) {
        if path.first().is_some_and(|first| ["crate", "self", "super"].contains(&first.as_str())) {
            self.mention(path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes(item).iter().any(is_for_tests) {
            visit::visit_item(self, item);
        } else if let Item::Mod(module) = item {
            self.found.tests.push([&self.here[..], &[module.ident.to_string()]].concat());
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.here.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.here.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.follow(&item.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Path = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.mention_rooted(&names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.scan(call.tokens.clone());
    }
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

/// Returns true for `#[cfg(test)]`, also with additional conditions.
fn is_for_tests(attribute: &Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let condition = list.tokens.to_string();
    let mut words = condition.split(|c: char| !c.is_alphanumeric() && c != '_');
    list.path.is_ident("cfg") && !condition.contains("not") && words.any(|word| word == "test")
}
