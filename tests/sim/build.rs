//! Names the sources of the core, or a copy of them with a bug: `PLANTED="a return is not told" cargo test …`.

use std::{env, fs, path::Path};

#[allow(dead_code, reason = "the tests need the rest of it")]
#[path = "src/planted.rs"]
pub mod planted;

fn main() {
    println!("cargo::rerun-if-env-changed=PLANTED");
    println!("cargo::rerun-if-changed=planted.md");
    println!("cargo::rerun-if-changed=../../src/redis/core");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    let out = Path::new(&out);
    let sim = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let redis = format!("{sim}/../../src/redis");
    let core = match env::var("PLANTED") {
        Ok(name) => copied(&name, Path::new(&redis), out),
        Err(_) => format!("{redis}/core/mod.rs"),
    };
    let modules = format!(
        "#[allow(dead_code, unreachable_pub, unused_imports)]
        #[path = {core:?}]
        mod core;
        #[allow(dead_code)]
        mod protocol {{
            #[path = \"{redis}/protocol/answer.rs\"]
            mod answer;
            #[path = \"{redis}/protocol/command.rs\"]
            mod command;
            #[path = \"{redis}/protocol/id.rs\"]
            mod id;
            pub(in crate::redis) use answer::{{Acquired, Answer, Fault, Message, Queued, Reply, Told}};
            pub(in crate::redis) use command::{{Command, Group, Part, Position, Sink, Verb, Wanted}};
            pub(in crate::redis) use id::{{Flow, LeaseId, LeaseName, Owner, Units}};
        }}
        #[path = \"{sim}/src/shipped.rs\"]
        pub(crate) mod shipped;"
    );
    fs::write(out.join("redis.rs"), modules).expect("the folder is ours");
}

/// Copies the core with a bug. Returns its first file.
fn copied(name: &str, redis: &Path, out: &Path) -> String {
    let mut bugs = planted::bugs("In the core").into_iter();
    let bug = bugs.find(|bug| bug.name == name);
    let planted::Bug { file, old, new, .. } = bug.expect("PLANTED names a bug");
    let copy = out.join("core");
    fs::create_dir_all(&copy).expect("the folder is ours");
    for entry in fs::read_dir(redis.join("core")).expect("it is there") {
        let path = entry.expect("it can be read").path();
        let mut text = fs::read_to_string(&path).expect("it is text");
        if path.file_stem().is_some_and(|stem| stem == file) {
            assert_eq!(text.matches(&old).count(), 1, "{file} has {old:?} once");
            text = text.replace(&old, &new);
        }
        let name = path.file_name().expect("a file has one");
        fs::write(copy.join(name), text).expect("the folder is ours");
    }
    copy.join("mod.rs").display().to_string()
}
