//! The published packages are complete, the README agrees with the manifest, and CI runs the scripts of `tests`.

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use serde_json::Value;

use crate::repository::{read, root};

/// The lines that cargo prints.
fn cargo(arguments: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?}: {errors}");
    let text = String::from_utf8(output.stdout).expect("cargo writes text");
    text.lines().map(str::to_owned).collect()
}

fn packaged() -> BTreeSet<String> {
    cargo(&["package", "--list", "--allow-dirty", "-ptower-semaphore"])
}

/// The lines of `cargo tree` with these edges and features, in this format.
fn tree(edges: &str, format: &str, features: &str) -> BTreeSet<String> {
    let (edges, format) = (format!("--edges={edges}"), format!("--format={format}"));
    let fixed = ["tree", "-ptower-semaphore", "--prefix=none"];
    cargo(&[&fixed[..], &[&edges, &format, features]].concat())
}

/// The text behind `key = ` in the crate's manifest.
fn manifest(key: &str) -> String {
    let text = read("Cargo.toml");
    let start = format!("{key} = ");
    let mut values = text.lines().filter_map(|line| line.strip_prefix(&start));
    values.next().expect("the manifest has it").to_owned()
}

/// The lines of a section of the crate's manifest.
fn section(name: &str) -> Vec<String> {
    let text = read("Cargo.toml");
    let lines = text.lines().skip_while(|line| *line != format!("[{name}]"));
    let lines = lines.skip(1).take_while(|line| !line.starts_with('['));
    lines.map(str::to_owned).collect()
}

/// The files under a folder, as paths from the root, without those of other packages.
fn files(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut unvisited = vec![root().join(folder)];
    while let Some(folder) = unvisited.pop() {
        if folder.join("Cargo.toml").exists() {
            continue;
        }
        for entry in fs::read_dir(folder).expect("it is a folder") {
            let path = entry.expect("it can be read").path();
            match path.is_dir() {
                true => unvisited.push(path),
                false => found.push(path.strip_prefix(root()).expect("it is inside").into()),
            }
        }
    }
    found
}

#[test]
fn all_sources_and_examples_are_published_and_no_tests_are() {
    let packaged = packaged();
    for path in files("src").into_iter().chain(files("examples")) {
        let path = path.to_str().expect("a path is text");
        assert!(packaged.contains(path), "{path} is not in the package");
    }
    let unpublished = ["benches/", "tests/", "target/"];
    for path in &packaged {
        let is_published = !unpublished.iter().any(|folder| path.starts_with(folder));
        assert!(is_published, "{path}");
    }
}

#[test]
fn each_page_and_picture_that_the_documentation_links_to_is_published() {
    let packaged = packaged();
    for page in ["README.md", "CHANGELOG.md"] {
        assert!(packaged.contains(page));
        for link in links(&read(page)) {
            let file = link.split('#').next().unwrap_or_default();
            let is_there = file.is_empty() || file.contains("://") || packaged.contains(file);
            assert!(is_there, "{page}: {link}");
        }
    }
}

/// The targets of the links of a page, pictures among them.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1);
    targets.map(|target| target.split(')').next().unwrap_or_default())
}

/// rustdoc shows a re-export of a public module's item without a summary, unless it is inlined.
#[test]
fn each_type_has_its_summary_on_the_crate_s_page() {
    let root = read("src/lib.rs");
    let public: Vec<_> = root.lines().filter_map(module).collect();
    assert!(public.contains(&"semaphore"));
    let lines: Vec<_> = root.lines().collect();
    for pair in lines.windows(2) {
        let path = pair[1].strip_prefix("pub use ").unwrap_or_default();
        let module = path.split("::").next().unwrap_or_default();
        let is_shown = !public.contains(&module) || pair[0] == "#[doc(inline)]";
        assert!(is_shown, "{}", pair[1]);
    }
}

/// The name of the public module that a line declares.
fn module(line: &str) -> Option<&str> {
    line.strip_prefix("pub mod ")?.strip_suffix(';')
}

#[test]
fn the_front_page_names_each_feature() {
    let page = read("README.md");
    let features = section("features").into_iter();
    let features: Vec<_> = features
        .filter(|line| !line.starts_with(['#', ' ', ']']))
        .filter_map(|line| Some(line.split_once(" = ")?.0.to_owned()))
        .filter(|feature| feature != "default")
        .collect();
    assert!(features.contains(&"redis".to_owned()));
    for feature in features {
        assert!(page.contains(&format!("`{feature}`")), "{feature}");
    }
}

#[test]
fn the_badges_agree_with_the_manifest() {
    let rust = manifest("rust-version").replace('"', "");
    let licence = manifest("license").replace('"', "").replace("OR", "or");
    for (badge, text) in [("rust", format!("{rust}+")), ("licence", licence)] {
        let picture = read(format!("docs/badges/{badge}.svg"));
        assert!(
            picture.contains(&format!(">{text}</text>")),
            "{badge}: {text}"
        );
        let shown = format!("![{badge}: {text}](docs/badges/{badge}.svg)");
        assert!(read("README.md").contains(&shown), "{shown}");
    }
    assert_eq!(manifest("unsafe_code"), "\"forbid\"");
}

#[test]
fn the_first_command_builds_nothing_that_only_a_few_tests_or_the_benchmarks_need() {
    // `cargo run --example market` builds all development dependencies.
    let tree = tree("normal,build,dev", "{lib}", "--features=default");
    assert!(tree.contains("tokio"));
    for name in "clap comfy_table criterion dashmap fantoccini plotters rcgen ring".split(' ') {
        assert!(!tree.contains(name), "{name}");
    }
}

#[test]
fn the_command_line_has_the_version_of_the_library_and_requires_it() {
    let version = manifest("version");
    let cli = read("cli/Cargo.toml");
    assert!(
        cli.contains(&format!("\nversion = {version}\n")),
        "{version}"
    );
    let required = format!("tower-semaphore = {{ version = {version}, path = \"..\"");
    assert!(cli.contains(&required), "{required}");
}

#[test]
fn without_default_features_nothing_of_redis_is_built() {
    let features = ["--features=redis", "--no-default-features"];
    let [with, without] = features.map(|features| tree("normal,build", "{lib}", features));
    for name in ["redis", "uuid", "futures_util"] {
        assert!(with.contains(name) && !without.contains(name), "{name}");
    }
}

/// Compares versions such as `1.88` and `1.88.0`, which are equal.
fn is_at_most(version: &str, other: &str) -> bool {
    let [version, other] = [version, other].map(|version| {
        let numbers = version.split('.').map(str::parse::<u32>);
        numbers.collect::<Result<Vec<_>, _>>().expect("numbers")
    });
    version
        .iter()
        .chain(&[0])
        .take(3)
        .cmp(other.iter().chain(&[0]).take(3))
        .is_le()
}

/// `rust-version` is true for users: no crate that they build with this one needs a newer Rust.
#[test]
fn no_dependency_needs_a_newer_rust_than_this_crate() {
    let shipped = tree("normal,build", "{p}", "--all-features");
    let shipped: BTreeSet<_> = shipped.iter().map(|line| name_and_version(line)).collect();
    let metadata = cargo(&["metadata", "--format-version=1", "--all-features"]);
    let metadata = metadata.first().expect("one line");
    let metadata: Value = serde_json::from_str(metadata).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("a list");
    let mut seen = 0;
    for package in packages {
        let name = format!("{} v{}", package["name"], package["version"]).replace('"', "");
        let needed = package["rust_version"].as_str();
        if let Some(needed) = needed.filter(|_| shipped.contains(&*name)) {
            seen += 1;
            let is_met = is_at_most(needed, env!("CARGO_PKG_RUST_VERSION"));
            assert!(is_met, "{name} needs Rust {needed}");
        }
    }
    // Otherwise the loop has checked too little.
    assert!(seen > 20 && shipped.iter().any(|name| name.starts_with("tokio ")));
    assert!(!shipped.iter().any(|name| name.starts_with("criterion ")));
}

/// The first two words of a line, such as `tokio v1.0.0`.
fn name_and_version(line: &str) -> &str {
    let end = line.match_indices(' ').nth(1);
    end.map_or(line, |(end, _)| &line[..end])
}

/// The only command of CI besides the scripts: the build server may have an old Rust.
const SETUP: &str = "rustup update stable";

#[test]
fn ci_runs_only_scripts_that_can_be_run_anywhere() {
    let workflow = read(".github/workflows/ci.yml");
    let commands = workflow
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- run: "));
    let commands: BTreeSet<_> = commands.filter(|command| *command != SETUP).collect();
    let expected = [
        "tests/package.sh ${{ matrix.step }}",
        "tests/run.sh",
        "tests/run.sh --all",
    ];
    assert_eq!(commands, expected.into());
    assert!(!workflow.contains("run: |"));
}

#[test]
fn ci_runs_each_step_of_the_package_script() {
    let script = read("tests/package.sh");
    let steps = script.lines().find_map(|line| line.strip_prefix("steps=("));
    let steps = steps.and_then(|steps| steps.strip_suffix(')'));
    let steps = steps.expect("the script has steps").replace(' ', ", ");
    let matrix = format!("step: [{steps}]");
    assert!(
        read(".github/workflows/ci.yml").contains(&matrix),
        "{matrix}"
    );
}

/// A new field of a non-exhaustive variant breaks no caller. Callers construct the exceptions.
#[test]
fn each_variant_with_fields_is_non_exhaustive() {
    let exceptions = ["ShareOf"];
    let mut seen = 0;
    for path in files("src") {
        let text = read(path.to_str().expect("a path is text"));
        for body in text.split("\npub enum ").skip(1) {
            let body = body.split("\n}").next().unwrap_or_default();
            let lines: Vec<_> = body.lines().collect();
            for pair in lines.windows(2).filter(|pair| has_fields(pair[1])) {
                seen += 1;
                let is_open = pair[0].trim() == "#[non_exhaustive]";
                let is_exception = exceptions.iter().any(|name| pair[1].contains(name));
                assert!(is_open || is_exception, "{}: {}", path.display(), pair[1]);
            }
        }
    }
    assert!(seen > 20, "only {seen} variants were found");
}

/// True if a line of an enum begins a variant that has fields.
fn has_fields(line: &str) -> bool {
    let name = line.strip_prefix("    ").unwrap_or_default();
    name.starts_with(|first: char| first.is_ascii_uppercase()) && name.contains(['(', '{'])
}
