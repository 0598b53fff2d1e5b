//! The modules follow the floor plan of CONTRIBUTING.md: two halves meet at one trait, and a module uses only modules
//! below it.

mod graph;
mod inside;
mod paths;
mod source;

use graph::arrows;
use source::{Source, sources};

/// The modules that a request passes, from the top down. Each may use only those after it, and [`BASE`].
const HTTP: [&str; 18] = [
    "usage_routes",
    "layer",
    "limit",
    "service",
    "global",
    "extract",
    "future",
    "admission",
    "body",
    "settings",
    "shadow",
    "nesting",
    "reject",
    "retry",
    "fields",
    "json",
    "key",
    "semaphore",
];

/// The stores. Each may use only `semaphore` and [`BASE`].
const STORAGE: [&str; 3] = ["lock", "memory", "redis"];

/// The modules that both halves use.
const BASE: [&str; 4] = ["background", "observe", "sync", "timer"];

/// Only documentation, so it uses nothing.
const GUIDE: &str = "guide";

/// True if a module may use another. `None` if the plan does not list it.
fn may_use(module: &str, used: &str) -> Option<bool> {
    match module {
        GUIDE => return Some(false),
        _ if BASE.contains(&module) => return Some(false),
        _ if STORAGE.contains(&module) => {
            return Some(used == "semaphore" || BASE.contains(&used));
        }
        _ => {}
    }
    let floor = HTTP.iter().position(|floor| *floor == module)?;
    Some(HTTP[floor + 1..].contains(&used) || BASE.contains(&used))
}

fn is_http(source: &&Source) -> bool {
    HTTP.contains(&source.module.as_str()) && source.module != "semaphore"
}

fn is_storage(source: &&Source) -> bool {
    STORAGE.contains(&source.module.as_str())
}

/// Asserts that no source of a half names one of these words.
fn assert_names_none(is_in_half: impl Fn(&&Source) -> bool, words: &[&str]) {
    let sources = sources();
    let half: Vec<_> = sources.iter().filter(is_in_half).collect();
    assert!(!half.is_empty());
    for source in half {
        for word in words {
            assert!(!source.names(word), "{} names {word}", source.path);
        }
    }
}

#[test]
fn the_http_half_knows_no_storage() {
    assert_names_none(is_http, &["redis", "memory"]);
}

#[test]
fn the_storage_half_knows_no_http() {
    let words = ["http", "http_body", "tower_layer", "tower_service", "axum"];
    assert_names_none(is_storage, &words);
}

#[test]
fn the_seam_knows_neither_half() {
    let is_seam = |source: &&Source| source.module == "semaphore";
    assert_names_none(is_seam, &["redis", "memory", "http", "http_body", "axum"]);
}

/// Recorders and subscribers are code of users, which may panic. Each is called in one file, which catches panics.
#[test]
fn one_file_calls_recorders_and_one_calls_subscribers() {
    for (name, file) in [("metrics::", "recorder.rs"), ("tracing::", "events.rs")] {
        let calls = |source: &Source| source.code().contains(name);
        let callers = sources().into_iter().filter(calls);
        let callers: Vec<_> = callers.map(|source| source.path).collect();
        assert_eq!(callers, [format!("observe/{file}")]);
    }
}

#[test]
fn every_module_is_on_the_plan() {
    for source in sources() {
        let known = source.module == "lib" || may_use(&source.module, "").is_some();
        assert!(known, "{} is not on the floor plan", source.path);
    }
}

/// The top-level module that a module lies in.
fn top(module: &str) -> &str {
    module.split('/').next().unwrap_or(module)
}

#[test]
fn no_arrow_points_up() {
    for (module, used) in arrows(&sources()) {
        let from = top(&module);
        for to in used.iter().map(|used| top(used)) {
            let is_down = from == to || from.is_empty() || may_use(from, to) == Some(true);
            assert!(is_down, "{module} uses {to}, which is not below it");
        }
    }
}

#[test]
fn the_guide_holds_no_code() {
    let sources = sources();
    let is_rust = |source: &&Source| source.module == GUIDE && source.path.ends_with(".rs");
    let guide: Vec<_> = sources.iter().filter(is_rust).collect();
    assert!(!guide.is_empty());
    let is_docs = |line: &str| {
        line.is_empty() || line.starts_with("pub mod ") || line.starts_with("#![cfg_attr(")
    };
    for source in guide {
        let mut lines = source.code().lines();
        assert!(lines.all(is_docs), "{} holds code", source.path);
    }
}

#[test]
fn names_are_whole_words_of_the_code() {
    let source = Source::new("redis/name.rs", "// http\nuse http_body; let https = 1;");
    assert_eq!(source.module, "redis");
    assert!(source.names("http_body"));
    assert!(!source.names("http"));
}
