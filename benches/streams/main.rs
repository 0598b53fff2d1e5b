//! What it costs to *hold* permits, as streams do: in commands, in processor time of both sides,
//! in memory; and whether a large limit costs more than a small one.
//!
//! `cargo bench --bench streams`, about two minutes; `-- --quick` in one.

mod child;
mod hold;
mod limits;
#[path = "../../tests/support/mod.rs"]
mod servers;
#[path = "../support/mod.rs"]
mod support;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    if let Some(load) = child::asked() {
        return runtime.block_on(child::hold(load));
    }
    runtime.block_on(async {
        hold::compare().await;
        limits::compare().await;
    });
}
