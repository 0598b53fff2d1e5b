//! Compiles the examples of the guide that need crates which the library does not.

#[cfg(doctest)]
#[doc = include_str!("../../../src/guide/recipes/tonic.md")]
struct Tonic;

#[cfg(doctest)]
#[doc = include_str!("../../../src/guide/recipes/reqwest.md")]
struct Reqwest;

#[cfg(doctest)]
#[doc = include_str!("../../../src/guide/moving/governor.md")]
struct Governor;
