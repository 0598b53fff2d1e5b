//! The order inside of the stores and of `proto`: each file uses only those below it.

use super::{
    graph::{arrows, cycle},
    source::{Source, proto_sources, sources},
};
use std::collections::BTreeSet;

/// The files of the store in memory, from the top down.
const MEMORY: [&str; 13] = [
    "operate", "store", "waiter", "grant", "keys", "shard", "entry", "queue", "budget", "holders",
    "fair", "units", "limits",
];

/// The folders of the store in Redis, and which of the others each may use. Its other files may use all of them.
const REDIS: [(&str, &[&str]); 3] = [
    ("driver", &["protocol", "transport"]),
    ("protocol", &[]),
    ("transport", &[]),
];

/// The files of the store in Redis that all of these folders may use.
const COMMON: [&str; 2] = ["error", "fault"];

/// Asserts that each file of a store is in the list `order`, and that it uses only files after it. A `mod.rs` may be
/// missing in the list: it only re-exports, so no arrow ends there.
fn assert_order(store: &str, order: &[&str]) {
    let (arrows, inside) = (arrows(&sources()), format!("{store}/"));
    let position = |module: &str| {
        let file = module.strip_prefix(&inside)?;
        order.iter().position(|other| *other == file)
    };
    for file in order {
        let is_there = arrows.contains_key(&format!("{inside}{file}"));
        assert!(is_there, "{inside}{file} is on the list, but not in src");
    }
    let is_inside = |module: &str| module == store || module.starts_with(&inside);
    for (module, used) in arrows.iter().filter(|(module, _)| is_inside(module)) {
        let folder = format!("{module}/");
        let is_folder = arrows.keys().any(|other| other.starts_with(&folder));
        assert!(
            is_folder || position(module).is_some(),
            "{module} is not on the list"
        );
        for used in used.iter().filter(|used| is_inside(used)) {
            let below = position(used);
            // `None`, the position of a `mod.rs`, is above all others.
            let is_down = below.is_some() && position(module) < below;
            assert!(is_down, "{module} uses {used}, which is not below it");
        }
    }
}

#[test]
fn memory_reads_from_the_top_down() {
    assert_order("memory", &MEMORY);
}

/// The folder in which a module of the store in Redis lies, or its file's name if it is in no folder.
fn folder_of(module: &str) -> Option<&str> {
    module.strip_prefix("redis/")?.split('/').next()
}

#[test]
fn the_folders_of_redis_use_only_those_below_them() {
    let index_of = |name: &str| REDIS.iter().position(|(folder, _)| *folder == name);
    let mut seen = [false; REDIS.len()];
    for (module, used) in arrows(&sources()) {
        let Some(index) = folder_of(&module).and_then(index_of) else {
            continue;
        };
        seen[index] = true;
        let (name, below) = REDIS[index];
        for used in used.iter().filter_map(|used| folder_of(used)) {
            let is_down = used == name || below.contains(&used) || COMMON.contains(&used);
            assert!(is_down, "{module} uses {used}, which is not below it");
        }
    }
    assert_eq!(seen, [true; REDIS.len()]);
}

#[test]
fn no_files_use_each_other_in_a_cycle() {
    assert_eq!(cycle(&arrows(&sources())), None);
}

/// Each script is complete in its file: nothing replaces a line such as `-- include FILE` by another file.
#[test]
fn no_script_has_an_include_mark() {
    let sources = proto_sources();
    assert!(sources.iter().any(|source| source.path.ends_with(".lua")));
    for Source { path, text, .. } in sources {
        assert!(!text.contains("-- include"), "{path} has an include mark");
    }
}

#[test]
fn proto_uses_no_client_runtime_lock_clock_or_randomness() {
    let forbidden = [
        "tokio",
        "redis",
        "Mutex",
        "RwLock",
        "Condvar",
        "Instant",
        "SystemTime",
        "thread",
        "rand",
        "net",
        "fs",
    ];
    for source in proto_sources() {
        let is_rust = source.path.ends_with(".rs");
        let named = forbidden.iter().find(|word| is_rust && source.names(word));
        assert_eq!(named, None, "{}", source.path);
    }
}

/// The numbers of the core's rules that a text names, as `rule 3` or `rules 5 and 21`.
fn rules_named(text: &str) -> BTreeSet<u32> {
    let text = text.to_lowercase();
    let named = text.match_indices("rule").flat_map(|(at, _)| {
        let rest = text[at + 4..].trim_start_matches('s').trim_start();
        let words = rest.split([' ', ')', '.', ',']);
        words
            .take_while(|word| *word == "and" || word.parse::<u32>().is_ok())
            .collect::<Vec<_>>()
    });
    named.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn the_code_of_the_core_names_each_rule_that_it_enforces() {
    // The docs of the core list the rules, as `3. *Name.*`.
    let (mut named, mut rule_count) = (BTreeSet::new(), 0);
    for source in proto_sources() {
        let is_core = source.module.starts_with("core");
        let lines = source.text.lines().filter(|_| is_core);
        for line in lines {
            match line.strip_prefix("//! ") {
                Some(docs) => {
                    let number = docs
                        .split_once(". *")
                        .and_then(|(number, _)| number.parse().ok());
                    rule_count = rule_count.max(number.unwrap_or(0));
                }
                None => named.extend(rules_named(line)),
            }
        }
    }
    assert_eq!(named, (1..=rule_count).collect());
    assert!(rule_count > 20);
    assert_eq!(
        rules_named("It holds (rules 5 and 21). Rule 7."),
        [5, 7, 21].into()
    );
}

#[test]
fn the_core_uses_the_verbs_and_not_the_other_way_round() {
    let arrows = arrows(&proto_sources());
    assert!(arrows["core"].iter().any(|used| used.starts_with("verbs/")));
    for (module, used) in arrows
        .iter()
        .filter(|(module, _)| module.starts_with("verbs"))
    {
        let core = used.iter().find(|used| used.starts_with("core"));
        assert_eq!(core, None, "{module}");
    }
}

fn arrows_of(files: &[(&str, &str)]) -> Vec<(String, String)> {
    let sources: Vec<_> = files
        .iter()
        .map(|(path, text)| Source::new(path, text))
        .collect();
    let arrows = arrows(&sources).into_iter();
    let pairs = arrows.flat_map(|(module, used)| {
        let pair = move |used| (module.clone(), used);
        used.into_iter().map(pair)
    });
    pairs.collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let to_owned = |(module, used): &(&str, &str)| ((*module).to_owned(), (*used).to_owned());
    expected.iter().map(to_owned).collect()
}

#[test]
fn arrows_are_found_in_every_form() {
    let found = arrows_of(&[
        (
            "a.rs",
            "use crate::{b::{self, One as Two}, c::deep};\nfn f() { deep::f(); }",
        ),
        (
            "b.rs",
            "pub fn f() -> super::c::deep::Item { self::g() } // crate::a::Item",
        ),
        ("c/mod.rs", "mod deep;\nfn f() { deep::f() }"),
        (
            "c/deep.rs",
            "use std::fmt; use super::super::d::*; const D: u8 = fmt::d;",
        ),
        (
            "d.rs",
            "macro_rules! m { () => { $crate::a::Item } }\n\
             pub(in crate::d) fn f() {} /// [`a`](crate::a)\n#[cfg(test)] mod tests { use crate::a; }",
        ),
    ]);
    let expected = [
        ("a", "b"),
        ("a", "c/deep"),
        ("b", "c/deep"),
        ("c", "c/deep"),
        ("c/deep", "d"),
    ];
    assert_eq!(found, pairs(&expected));
}

#[test]
fn an_arrow_goes_through_a_re_export_to_its_origin() {
    let found = arrows_of(&[
        ("lib.rs", "mod a; mod b;\npub use a::Item;"),
        (
            "a/mod.rs",
            "mod item; mod own;\npub use item::{Item, item};\npub struct Own;",
        ),
        ("a/item.rs", "pub struct Item; pub fn item() {}"),
        ("a/own.rs", "use super::{Own, item}; use super::item::Item;"),
        (
            "b.rs",
            "use crate::a; use crate::Item as Other; fn f() { a::item(); }",
        ),
    ]);
    let expected = [
        ("", "a/item"),
        ("a", "a/item"),
        ("a/own", "a"),
        ("a/own", "a/item"),
        ("b", "a/item"),
    ];
    assert_eq!(found, pairs(&expected));
}

#[test]
fn a_cycle_is_found_wherever_it_begins() {
    let cycle_of = |files: &[(&str, &str)]| {
        let sources = files.iter().map(|(path, text)| Source::new(path, text));
        cycle(&arrows(&sources.collect::<Vec<_>>()))
    };
    let (a, b) = (("a.rs", "use crate::b::B;"), ("b.rs", "use crate::c::{C};"));
    assert_eq!(cycle_of(&[a, b, ("c.rs", "use crate::d::D;")]), None);
    let back = ("c.rs", "fn f() { super::b::f() }");
    let expected = ["b", "c"].map(String::from).to_vec();
    assert_eq!(cycle_of(&[a, b, back]), Some(expected));
}
