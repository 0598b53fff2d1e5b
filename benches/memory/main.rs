//! The store in memory, and the layer over it, beside a hand-written limit: a `DashMap` of Tokio's
//! semaphores. Measured by criterion.
//!
//! `cargo bench -p tower-semaphore-benches --bench memory`, about two minutes; `-- --quick` in
//! twenty seconds.

mod layer;
mod limits;
mod measure;
mod pairs;
mod rival;

fn main() {
    let mut bench = measure::Bench::new();
    pairs::compare(&mut bench);
    limits::compare(&mut bench);
    layer::compare(&mut bench);
}
