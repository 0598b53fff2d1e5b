//! The interface of `events.rs` without the feature `tracing`. Calls compile to nothing.

#![allow(dead_code, reason = "without some features some calls do not exist")]

use super::outcome::{LostBy, Outcome, Store};
use std::{error::Error, fmt};

pub(crate) struct Asked(());

impl Asked {
    #[inline]
    pub(crate) fn of(_: Store, _: &str, _: &[u8]) -> Self {
        Self(())
    }

    #[inline]
    pub(crate) fn refused(&self, _: Option<&str>, _: Outcome, _: &dyn Error) {}
}

#[derive(Clone, Default)]
pub(crate) struct Origin(());

impl Origin {
    #[inline]
    pub(crate) fn of(_: Store, _: &str) -> Self {
        Self(())
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<(Store, &str)> {
        None
    }
}

#[derive(Default)]
pub(crate) struct WaitSpan(());

impl WaitSpan {
    #[inline]
    pub(crate) fn begin(_: Store, _: &str, _: impl FnOnce() -> String) -> Self {
        Self(())
    }

    #[inline]
    pub(crate) fn is_of(&self, _: Store, _: &str) -> bool {
        false
    }

    #[inline]
    pub(crate) fn end(&mut self, _: Outcome) {}
}

#[inline]
pub(crate) fn shadowed(_: &str, _: Outcome) {}

#[inline]
pub(crate) fn without_key(_: &str, _: &dyn Error) {}

#[inline]
pub(crate) fn forgotten(_: &str, _: &str) {}

#[inline]
pub(crate) fn nested(_: &str, _: u32, _: u32) {}

#[inline]
pub(crate) fn waits_long(_: u64) {}

#[inline]
pub(crate) fn no_extension(_: &str) {}

#[inline]
pub(crate) fn no_route() {}

#[inline]
pub(crate) fn lost(_: Option<(Store, &str)>, _: LostBy, _: Option<u64>) {}

#[inline]
pub(crate) fn degraded(_: Option<(Store, &str)>, _: &'static str, _: &str) {}

#[inline]
pub(crate) fn fails(_: &dyn Error) {}

#[inline]
pub(crate) fn works() {}

#[inline]
pub(crate) fn dropped(_: u64) {}

#[inline]
pub(crate) fn keeper_died() {}

#[inline]
pub(crate) fn core_died() {}

#[inline]
pub(crate) fn connected(_: &dyn fmt::Display, _: bool) {}

#[inline]
pub(crate) fn not_connected(_: &dyn Error) {}

#[inline]
pub(crate) fn risk(_: &dyn fmt::Display) {}
