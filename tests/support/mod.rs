//! What the tests share. Only `fleet` and `stores` use the library; the others are the oracles that
//! judge it.

#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "each test file uses a part of it")]
pub(crate) mod clock;
#[allow(dead_code, reason = "each test file uses a part of it")]
pub(crate) mod example;
#[cfg(feature = "redis")]
#[allow(dead_code, reason = "each test file uses a part of it")]
pub(crate) mod fleet;
#[allow(dead_code, reason = "each test file uses a part of it")]
pub(crate) mod frame;
#[allow(dead_code, reason = "each test file uses a part of it")]
pub(crate) mod inside;
#[allow(dead_code, reason = "each test file uses a part of it")]
pub(crate) mod proxy;
#[allow(dead_code, reason = "each test file uses a part of it")]
pub(crate) mod redis;
#[allow(dead_code, reason = "each test file uses a part of it")]
pub(crate) mod resp;
#[allow(dead_code, reason = "each test file uses a part of it")]
pub(crate) mod stall;
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "few test files use it"
)]
pub(crate) mod stores;
#[allow(dead_code, reason = "each test file uses a part of it")]
pub(crate) mod wait;
