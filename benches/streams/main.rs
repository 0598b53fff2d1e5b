//! What permits cost that are *held*, as streams hold them: commands, processor time of both sides,
//! memory; and whether a large limit costs more than a small one.
//!
//! `cargo bench -p tower-semaphore-benches --bench streams`, about two minutes; `-- --quick` in
//! one.

mod child;
mod held;
mod limits;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    if let Some(load) = child::load_of_child() {
        return runtime.block_on(child::hold_permits(load));
    }
    runtime.block_on(async {
        held::compare().await;
        limits::compare().await;
    });
}
