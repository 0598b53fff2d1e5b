//! Refused uploads: the client reads the refusal, and no other client's request fails.

mod behind;
mod bounds;
mod direct;
