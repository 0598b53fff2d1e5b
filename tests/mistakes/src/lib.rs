//! This crate has only tests.
