//! `rust-version` is honest: no crate that users get with this one needs a newer Rust.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Major, minor, patch.
type Version = [u64; 3];

/// What cargo has resolved for this platform, with every feature.
fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--all-features"])
        .args(["--filter-platform", &host()])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {errors}");
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

/// The platform that this compiler builds for; its crates are here, others' may not be.
fn host() -> String {
    let output = Command::new("rustc").arg("-vV").output().expect("rustc");
    let text = String::from_utf8(output.stdout).expect("rustc writes text");
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("rustc names its host").to_owned()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().expect("cargo's lists are lists")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().expect("cargo's names are strings")
}

/// The crates that come with this one: all that is reached without a development dependency.
/// The dependencies of a feature that only the tests enable count, too.
fn shipped(metadata: &Value) -> BTreeSet<&str> {
    let nodes = list(&metadata["resolve"], "nodes").iter();
    let nodes: BTreeMap<_, _> = nodes.map(|node| (text(node, "id"), node)).collect();
    let mut found = BTreeSet::new();
    let mut open = vec![text(&metadata["resolve"], "root")];
    while let Some(id) = open.pop() {
        if found.insert(id) {
            let needed = list(nodes[id], "deps").iter().filter(|dep| is_shipped(dep));
            open.extend(needed.map(|dep| text(dep, "pkg")));
        }
    }
    found
}

fn is_shipped(dependency: &Value) -> bool {
    let mut kinds = list(dependency, "dep_kinds").iter();
    kinds.any(|kind| kind["kind"] != "dev")
}

/// Each shipped crate's name, and the Rust version that it needs.
fn required(metadata: &Value) -> Vec<(&str, Version)> {
    let shipped = shipped(metadata);
    let packages = list(metadata, "packages").iter();
    let packages = packages.filter(|package| shipped.contains(text(package, "id")));
    let required = packages.filter_map(|package| {
        let version = package["rust_version"].as_str()?;
        Some((text(package, "name"), parse(version)))
    });
    required.collect()
}

fn parse(text: &str) -> Version {
    let mut version = Version::default();
    for (number, digits) in version.iter_mut().zip(text.split('.')) {
        *number = digits.parse().expect("versions are numbers");
    }
    version
}

#[test]
fn no_dependency_needs_a_newer_rust_than_this_crate() {
    let ours = parse(env!("CARGO_PKG_RUST_VERSION"));
    let metadata = metadata();
    let required = required(&metadata);
    assert!(required.iter().any(|(name, _)| *name == "tokio"));
    assert!(!required.iter().any(|(name, _)| *name == "criterion"));
    for (name, version) in required {
        assert!(version <= ours, "{name} needs Rust {version:?}");
    }
}
