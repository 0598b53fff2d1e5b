//! Who holds what: the permits of one key, and the claims that wait for it.

mod json;

use super::Process;
use std::time::SystemTime;

/// What is held of one key, and what waits for it, at one instant. [`Operate::usage`](super::Operate::usage)
/// returns it.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{Claim, MemorySemaphore, Operate, Policy, Semaphore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let semaphore = MemorySemaphore::builder().holders(true).build();
/// let claim = Claim::new("account-42").with_limit(5).with_label("GET /market/export");
/// let permit = semaphore.acquire(claim).await.unwrap();
///
/// let usage = semaphore.usage(&Policy::DEFAULT, &"account-42".into()).await.unwrap();
/// assert_eq!((usage.limit, usage.units), (Some(5), 1));
/// assert_eq!(usage.held[0].label.as_deref(), Some("GET /market/export"));
/// assert_eq!(usage.held[0].process.pid, Some(std::process::id()));
/// # drop(permit);
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// When that was, by the store's clock, as all times here.
    pub now: SystemTime,
    /// The limit of the claim that came last, of those that hold or wait; `None`: the store knows none.
    pub limit: Option<u32>,
    /// How many units are held.
    pub units: u32,
    /// The permits that hold them, the oldest claim first. One that has changed its weight is one.
    pub held: Vec<PermitInfo>,
    /// The claims that wait, in the order of the queue.
    pub waiting: Vec<PermitInfo>,
}

/// A permit that is held, or a claim that waits for one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitInfo {
    /// What the store calls it, unique for its key, from the claim to the release. In Redis a permit of
    /// several units that is lost and granted again has another one then.
    /// [`Operate::revoke`](super::Operate::revoke) takes it.
    pub id: String,
    /// Whose it is.
    pub process: Process,
    /// How many units it holds, or waits for.
    pub weight: u32,
    /// The limit that it was claimed under, in units.
    pub limit: u32,
    /// What its claim was [labelled](super::Claim::with_label).
    pub label: Option<String>,
    /// When it was claimed. It may have waited since.
    pub since: SystemTime,
    /// When its lease ends unless it is refreshed; of a waiter, until when it counts as alive. `None` in
    /// a store without leases.
    pub ends: Option<SystemTime>,
}

impl Usage {
    /// The usage of a key of which so many units are held. The limit is that of the claim that came
    /// last. See [`PermitInfo::new`] for an example.
    pub fn new(
        now: SystemTime,
        units: u32,
        mut held: Vec<PermitInfo>,
        waiting: Vec<PermitInfo>,
    ) -> Self {
        held.sort_by_key(|info| info.since);
        let last = held.iter().chain(&waiting).max_by_key(|info| info.since);
        Self {
            now,
            limit: last.map(|info| info.limit),
            units,
            held,
            waiting,
        }
    }
}

impl PermitInfo {
    /// A permit of which no more is known, for a store of your own.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use tower_semaphore::semaphore::{PermitInfo, Process, Usage};
    ///
    /// let now = SystemTime::now();
    /// let mut permit = PermitInfo::new("17", Process::current(), 1, 5, now);
    /// permit.label = Some("nightly".to_owned());
    /// assert_eq!(Usage::new(now, 1, vec![permit], vec![]).limit, Some(5));
    /// ```
    pub fn new(
        id: impl Into<String>,
        process: Process,
        weight: u32,
        limit: u32,
        since: SystemTime,
    ) -> Self {
        Self {
            id: id.into(),
            process,
            weight,
            limit,
            label: None,
            since,
            ends: None,
        }
    }
}
