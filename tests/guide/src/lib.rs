//! Compiles the examples of the guide that need crates that the library does not need.

#[cfg(doctest)]
#[doc = include_str!("../../../src/guide/recipes/actix.md")]
struct Actix;

#[cfg(doctest)]
#[doc = include_str!("../../../src/guide/recipes/tonic.md")]
struct Tonic;

#[cfg(doctest)]
#[doc = include_str!("../../../src/guide/recipes/reqwest.md")]
struct Reqwest;

#[cfg(doctest)]
#[doc = include_str!("../../../src/guide/moving/governor.md")]
struct Governor;
