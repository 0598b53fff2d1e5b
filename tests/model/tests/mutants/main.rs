//! Planted mistakes in the scripts, each of which a walk finds. `planted.md` has the table.

mod acquire;
mod grant;
mod levels;
mod others;
mod queue;
mod revoke;
mod revoked;
mod usage;

use tower_semaphore_model::{scenarios, scripts::Scripts, walk::walk};

/// A mistake in a script: the file, what stands there, what is put in its place, the scenario that
/// meets it, and the invariant that does not hold then.
struct Mutant(
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

#[test]
fn every_planted_mistake_is_found_by_the_invariant_that_the_table_names() {
    let files = [
        acquire::MUTANTS,
        grant::MUTANTS,
        levels::MUTANTS,
        queue::MUTANTS,
        others::MUTANTS,
        revoke::MUTANTS,
        revoked::MUTANTS,
        usage::MUTANTS,
    ];
    let wrong: Vec<_> = files.into_iter().flatten().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wrong with the row of a mistake, if anything is.
fn wrong(mutant: &Mutant) -> Option<String> {
    let Mutant(file, old, new, scenario, invariant) = mutant;
    let row = row(mutant);
    let scripts = Scripts::shipped().patched(file, old, new);
    let Some(fault) = walk(&scenarios::named(scenario), &scripts).fault else {
        return Some(format!("nobody sees\n{row}"));
    };
    if fault.violation.invariant != *invariant {
        return Some(format!("found otherwise\n{row}\n{fault}"));
    }
    let table = include_str!("planted.md");
    (!table.contains(&row)).then(|| format!("planted.md has no row\n{row}"))
}

/// The row of a mistake in the table.
fn row(Mutant(file, old, new, scenario, invariant): &Mutant) -> String {
    let code = |lua: &str| match lua.split_whitespace().collect::<Vec<_>>().join(" ") {
        line if line.is_empty() => "nothing".to_owned(),
        line => format!("`{line}`"),
    };
    let (old, new) = (code(old), code(new));
    format!("| {file} | {old} | {new} | {invariant} | {scenario} |")
}
