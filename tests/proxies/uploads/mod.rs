//! Uploads that are refused: their clients read the refusal, and nobody else's requests fail.

mod behind;
mod bounds;
mod direct;
