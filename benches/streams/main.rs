//! The cost of permits that are *held*, as streams hold them: commands, processor time of both sides, and memory. Also
//! whether a large limit costs more than a small one.
//!
//! `cargo bench -p tower-semaphore-benches --bench streams` takes about two minutes, with `-- --quick` one.

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
