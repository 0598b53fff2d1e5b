//! Prints the public API that a JSON file of rustdoc describes, one item a line. `tests/api.sh` calls it.

use public_api::Builder;
use std::{env, error::Error};

fn main() -> Result<(), Box<dyn Error>> {
    let json = env::args_os()
        .nth(1)
        .ok_or("usage: tower-semaphore-api JSON")?;
    let api = Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    for item in api.items() {
        // The chapters of the guide are documentation.
        if !item
            .to_string()
            .starts_with("pub mod tower_semaphore::guide")
        {
            println!("{item}");
        }
    }
    Ok(())
}
