//! The store in memory, and the layer over it, beside what one would write by hand: a `DashMap`
//! of Tokio's semaphores.
//!
//! `cargo bench --bench memory`, about a minute; `-- --quick` in ten seconds.

mod layer;
mod pairs;
mod rival;
#[path = "../support/mod.rs"]
mod support;

fn main() {
    pairs::compare();
    layer::compare();
}
