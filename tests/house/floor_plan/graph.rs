//! The graph of modules: an arrow from each module to each module that its paths use.

use super::{
    paths::{NamedPath, paths},
    source::Source,
};
use std::collections::{BTreeMap, BTreeSet};

/// The modules that each module uses. A module has the name of its file: `redis/store` is `redis/store.rs`, `redis` is
/// `redis/mod.rs`, and the root is the empty name.
pub(crate) type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The paths of each module.
struct Modules(BTreeMap<String, Vec<NamedPath>>);

/// The arrows between these files, without those of unit tests.
pub(crate) fn arrows(sources: &[Source]) -> Arrows {
    let rust = sources.iter().filter_map(|source| {
        let module = module(&source.path)?;
        Some((module, paths(source.code())))
    });
    let modules = Modules(rust.collect());
    let names = modules.0.keys();
    names
        .map(|name| (name.clone(), modules.used(name)))
        .collect()
}

/// The name of a file's module. `None` for other files and for tests.
fn module(path: &str) -> Option<String> {
    let path = path.strip_suffix(".rs")?;
    let name = path.strip_suffix("/mod").unwrap_or(path);
    let is_tests = name.split('/').any(|part| part == "tests");
    let name = if name == "lib" { "" } else { name };
    (!is_tests).then(|| name.to_owned())
}

impl Modules {
    /// The other modules that a module uses.
    fn used(&self, module: &str) -> BTreeSet<String> {
        let paths = self.0[module].iter();
        let mut used: BTreeSet<_> = paths
            .filter_map(|path| self.resolve(module, &path.segments))
            .collect();
        used.remove(module);
        used
    }

    /// The module of the item that a path in `from` names. `None` for an item of another crate, and for a path that
    /// ends with a module: later paths through its name show which items are used.
    fn resolve(&self, from: &str, path: &[String]) -> Option<String> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.descend("", rest),
            "self" => self.descend(from, rest),
            "super" => {
                let above = rest.iter().take_while(|name| *name == "super").count();
                let parent = (0..=above).fold(from, |module, _| parent(module));
                self.descend(parent, &rest[above..])
            }
            child if self.has_child(from, child) => self.descend(from, path),
            _ => self.imported(from, path),
        }
    }

    /// Follows a path from a module down to an item. If the module imports the item, follows the import to its origin.
    fn descend(&self, module: &str, path: &[String]) -> Option<String> {
        let (name, rest) = path.split_first()?;
        let is_child = self.has_child(module, name);
        if is_child && !rest.is_empty() {
            return self.descend(&join(module, name), rest);
        }
        let origin = self.imported(module, path);
        origin.or_else(|| (!is_child).then(|| module.to_owned()))
    }

    /// Follows a path that begins with the name of an import.
    fn imported(&self, module: &str, path: &[String]) -> Option<String> {
        let (name, rest) = path.split_first()?;
        let imports = self.0.get(module).into_iter().flatten();
        let mut origins = imports.filter(|import| {
            // Otherwise `use name::name` would be resolved without end.
            let is_itself = import.segments.first() == Some(name) && !self.has_child(module, name);
            import.imported_as.as_ref() == Some(name) && !is_itself
        });
        origins.find_map(|import| self.resolve(module, &[&import.segments, rest].concat()))
    }

    fn has_child(&self, module: &str, name: &str) -> bool {
        self.0.contains_key(&join(module, name))
    }
}

fn parent(module: &str) -> &str {
    module.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn join(module: &str, name: &str) -> String {
    match module {
        "" => name.to_owned(),
        _ => format!("{module}/{name}"),
    }
}

/// A cycle of arrows, if any.
pub(crate) fn cycle(arrows: &Arrows) -> Option<Vec<String>> {
    let mut remaining = arrows.clone();
    // A module that uses none of the remaining modules cannot be on a cycle.
    while let Some(leaf) = remaining
        .keys()
        .find(|name| next(&remaining, name).is_none())
        .cloned()
    {
        remaining.remove(&leaf);
    }
    let mut path = vec![remaining.keys().next()?];
    loop {
        let next = next(&remaining, path.last()?)?;
        if let Some(start) = path.iter().position(|name| *name == next) {
            return Some(path[start..].iter().map(|name| (*name).clone()).collect());
        }
        path.push(next);
    }
}

/// The first module in `arrows` that a module uses.
fn next<'a>(arrows: &'a Arrows, name: &str) -> Option<&'a String> {
    arrows[name].iter().find(|used| arrows.contains_key(*used))
}
