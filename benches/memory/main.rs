//! The store in memory, and the layer over it, compared with a hand-written limit: a `DashMap` of Tokio's semaphores.
//! Uses criterion.
//!
//! `cargo bench -p tower-semaphore-benches --bench memory` takes about two minutes, with `-- --quick` twenty seconds.

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
