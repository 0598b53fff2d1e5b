//! Has only tests.
