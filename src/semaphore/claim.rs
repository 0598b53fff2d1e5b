//! The claim of one request to a store.

use super::{
    AcquireError, Budget, Charge, ClaimError, Key, MAX_SHARE, MAX_WEIGHT, Policy, SemaphoreId,
    Window,
};
use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, Instant},
};

/// How many claims may wait for a key at a time unless a claim or a layer sets another number.
///
/// That is half of the 200 requests that hyper runs at a time on an HTTP/2 connection. So if a proxy puts all clients
/// on one connection, the waiters of one key leave room for the requests of others.
pub const DEFAULT_MAX_WAITING: u32 = 100;

/// The longest head start. Capped at one year, so that sums cannot overflow.
const MAX_HEAD_START: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The longest label, in bytes of UTF-8. In Redis it is part of the permit's id, so it is short.
pub const MAX_LABEL: usize = 64;

/// The claim of one request: units of a key, under a policy and a limit.
///
/// The weight is 1 unless set. If a [`KeyExtractor`](crate::KeyExtractor) returns a claim without a policy, a limit, a
/// wait or a length of the queue, the layer's settings apply. Without a layer a claim needs a limit, and the other
/// defaults are named below.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_semaphore::Claim;
///
/// let export = Claim::new("account-42")
///     .with_limit(20)
///     .with_weight(3)
///     .with_policy("export")
///     .with_wait(Duration::from_secs(2))
///     .with_max_waiting(100);
/// assert_eq!((export.limit(), export.weight()), (Some(20), 3));
///
/// let of_another_account = export.clone().with_key("account-43");
/// assert_ne!(export, of_another_account);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use]
pub struct Claim {
    key: Key,
    policy: Option<Policy>,
    limit: Option<u32>,
    weight: u32,
    wait: Option<Duration>,
    max_waiting: Option<u32>,
    rare: Option<Arc<Rare>>,
    strict: bool,
    /// True for a claim of a limit in shadow.
    is_trial: bool,
    /// The number of the extractor that found the key, 0 for the first. If the layer sets the policy, the policy's name
    /// contains the number.
    alternative: u16,
}

/// Rarely used fields. They are boxed so that a `Claim` stays small.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Rare {
    flow: Option<Key>,
    share: u32,
    /// Not valid beside a flow.
    head_start: Duration,
    label: Option<Cow<'static, str>>,
    window: Option<Duration>,
    /// Only valid beside a window, and not beside a weight.
    estimate: Option<u32>,
    /// The semaphores of the limits that the claim's request is under already.
    outer: Option<Arc<[SemaphoreId]>>,
}

impl Rare {
    /// The values of a claim without these fields.
    const NONE: Self = Self {
        flow: None,
        share: 1,
        head_start: Duration::ZERO,
        label: None,
        window: None,
        estimate: None,
        outer: None,
    };
}

/// A larger claim would be moved by a call of `memcpy` instead of in registers, and a pair of acquire and release in
/// memory would take a fifth longer.
const _: () = assert!(size_of::<Claim>() <= 112);

impl Claim {
    /// A claim of weight 1 for `key`, without a limit yet. See [`Claim`] for an example.
    pub fn new(key: impl Into<Key>) -> Self {
        Self {
            key: key.into(),
            policy: None,
            limit: None,
            weight: 1,
            wait: None,
            max_waiting: None,
            rare: None,
            strict: false,
            is_trial: false,
            alternative: 0,
        }
    }

    /// Replaces the key. See [`Claim`] for an example.
    pub fn with_key(mut self, key: impl Into<Key>) -> Self {
        self.key = key.into();
        self
    }

    /// Sets how many units the key's permits may hold together. A limit of 0 refuses every claim.
    /// See [`Claim`] for an example.
    ///
    /// Claims for one key may have different limits: each is granted under its own.
    #[inline]
    pub fn with_limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Sets how many units this claim takes: 1 unless set, and [`MAX_WEIGHT`] at most. For a
    /// [budget](Self::with_window) the maximum is its limit. See [`Claim`] for an example.
    pub fn with_weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Makes the limit a budget: a number of units per window, from 1 ms to [`MAX_WINDOW`](super::MAX_WINDOW) (31
    /// days), in whole milliseconds. Units that a claim takes come back with time, evenly, and not with its release.
    ///
    /// A budget never grants a claim unless *spent + reserved + what the claim takes ≤ limit*:
    ///
    /// - *Spent* units were used, and time returns them evenly. The number that returns in one window is the limit of
    ///   the last grant. A claim without an estimate is a rate: its [weight](Self::with_weight) is spent when it is
    ///   granted.
    /// - *Reserved* units may still be used, and time does not return them. A claim with an
    ///   [estimate](Self::with_estimate) reserves it when it is granted. [`Permit::settle`](super::Permit::settle)
    ///   moves units from reserved to spent, and the end of the permit frees the rest.
    ///
    /// So if no request uses more than its estimate, the units used within any time *t* are at most *limit × (1 + t ÷
    /// window)*. A request that waits takes nothing of any budget, except on a Redis cluster: while it waits at one
    /// budget there, its units of the budgets before that one stay reserved. A refused request takes nothing at all.
    ///
    /// The window is part of the semaphore's name: another window is another budget, which begins with nothing spent.
    /// Limits and pauses that operators set for a policy hold for all of its windows. In the [claims](super::Claims) of
    /// a request, budgets come after all claims without a window, and a longer window comes before a shorter one.
    ///
    /// # Examples
    ///
    /// At most 5 requests of a key at a time, 600 per minute, and 100,000 tokens per minute:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// const MINUTE: Duration = Duration::from_secs(60);
    /// let store = MemorySemaphore::new();
    /// let key = "key-42";
    /// let requests = Claim::new(key).with_limit(5);
    /// let rate = Claim::new(key).with_policy("rate").with_limit(600).with_window(MINUTE);
    /// let tokens = Claim::new(key).with_policy("tokens").with_limit(100_000).with_window(MINUTE);
    /// let claims = [requests, rate, tokens.with_estimate(800)];
    ///
    /// let permit = store.acquire_all(claims.into()).await.unwrap();
    /// permit.settle("tokens", 120);
    /// permit.settle("tokens", 650);
    /// drop(permit);
    /// # }
    /// ```
    pub fn with_window(self, window: Duration) -> Self {
        self.with_rare(|rare| rare.window = Some(window))
    }

    /// Sets how many units of a [budget](Self::with_window) the claim is likely to use, up to the limit. They are
    /// reserved when it is granted, and spent as [`Permit::settle`](super::Permit::settle) reports their use. A permit
    /// that ends without a settlement counts as having used its estimate. A claim has a weight or an estimate, not
    /// both.
    ///
    /// Estimate what requests typically use, not the most that they may use. Reserved units are of no use to others: if
    /// requests last as long as the window, an estimate of four times the use leaves more than half of the limit
    /// unused.
    pub fn with_estimate(self, units: u32) -> Self {
        self.with_rare(|rare| rare.estimate = Some(units))
    }

    /// The window of the budget; `None` for a limit of concurrency. See [`with_window`](Self::with_window).
    pub fn window(&self) -> Option<Duration> {
        self.rare().window
    }

    /// The number of units that the claim reserves, if it has an [estimate](Self::with_estimate).
    pub fn estimate(&self) -> Option<u32> {
        self.rare().estimate
    }

    /// Sets how long this claim may wait in the queue if the limit is full. By default it does not wait. See [`Claim`]
    /// for an example.
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets the [wait](Self::with_wait) to the time from now to `deadline`: zero if that has passed.
    ///
    /// # Examples
    ///
    /// A gRPC call waits until its client's deadline, and two seconds at most:
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tower_semaphore::{Claim, ConcurrencyLimitLayer, MemorySemaphore, key};
    ///
    /// let by_account = key::from_fn(|parts| {
    ///     let account = Claim::new(parts.headers.get("x-account-id")?);
    ///     let wait = key::grpc_timeout(parts).unwrap_or(Duration::MAX).min(Duration::from_secs(2));
    ///     Some(account.with_wait_until(Instant::now() + wait))
    /// });
    /// let layer = ConcurrencyLimitLayer::new(5, by_account, MemorySemaphore::new());
    /// # drop(layer);
    /// ```
    pub fn with_wait_until(self, deadline: Instant) -> Self {
        self.with_wait(deadline.saturating_duration_since(Instant::now()))
    }

    /// Sets how many claims may wait for the key, up to and including this one: [`DEFAULT_MAX_WAITING`] unless set. If
    /// this number of claims waits before it already, the claim is refused with
    /// [`AcquireError::QueueFull`](super::AcquireError::QueueFull). Claims that it passes because of its [head
    /// start](Self::with_head_start) do not count. See [`Claim`] for an example.
    ///
    /// In a queue longer than *wait × limit ÷ hold*, where *hold* is how long a permit is held, the last claims time
    /// out. Until then each waiter has a cost:
    ///
    /// - Its request keeps a connection, or one of the 200 streams that hyper allows on an HTTP/2 connection. Where a
    ///   proxy puts several clients on one connection, 200 waiters of one key keep out the requests of all others.
    /// - Over Redis it sends a heartbeat every twelfth of a lease, and at least every 5 s. With a lease of 10 s, 10,000
    ///   waiters take a fifth of the server's core, and 100 waiters take a five-hundredth.
    /// - In memory it takes half a kilobyte and no time. With [flows](Self::with_flow) the store visits all waiters of
    ///   the key in two cases: more than half of them have left, or a claim joins a flow that a waiter has left.
    pub fn with_max_waiting(mut self, max_waiting: u32) -> Self {
        self.max_waiting = Some(max_waiting);
        self
    }

    /// Moves the claim forward in the queue, as if it had arrived earlier by this time: zero by default, and a year at
    /// most.
    ///
    /// Among claims of equal head starts the queue is first come, first served, and nothing starves. For example,
    /// interactive requests get 30 s and batch jobs none: an interactive request passes all batch jobs that arrived in
    /// the last 30 s, and no request passes a batch job that has waited for 30 s.
    ///
    /// A head start passes waiters, not holders. With [several claims](super::Claims), a job that waits at a wide limit
    /// already holds its units of the narrower limits, and cannot be passed there. Holders of one key cannot be passed
    /// either. So if batch jobs and interactive requests use one key, give the batch jobs a lower limit:
    ///
    /// ```
    /// # use {std::time::Duration, tower_semaphore::Claim};
    /// let wait = Duration::from_secs(2);
    /// let batch = Claim::new("model-1").with_limit(6).with_wait(wait);
    /// let interactive = Claim::new("model-1").with_limit(8).with_wait(wait);
    /// # drop((batch, interactive.with_head_start(Duration::from_secs(30))));
    /// ```
    ///
    /// # Examples
    ///
    /// ```
    /// # use {std::time::Duration, tower_semaphore::Claim};
    /// let interactive = Claim::new("model-1").with_wait(Duration::from_secs(600));
    /// drop(interactive.with_head_start(Duration::from_secs(30)));
    /// ```
    pub fn with_head_start(self, head_start: Duration) -> Self {
        self.with_rare(|rare| rare.head_start = head_start.min(MAX_HEAD_START))
    }

    /// Sets the flow that the claim belongs to in its key's queue: a tenant, or a class of work. Without flows the
    /// queue is first come, first served. With flows it is fair to them: the claims of a flow are served in the order
    /// of their arrival, and waiting flows are served in turns, by units granted. If *k* other flows wait, a newcomer
    /// waits for at most *k* other grants, however many claims these flows have queued. An idle flow saves nothing up.
    ///
    /// - The queue becomes fair with the first claim of a flow. Claims that wait already stay before that claim. From
    ///   then on, until nothing waits, claims without a flow are one flow of share 1.
    /// - A claim that leaves the queue before it is granted gives its turn to the next claim of its flow, and the
    ///   claims behind it move up. In Redis the call that removes the claim searches only the next 500 waiters for
    ///   them.
    /// - [`with_max_waiting`](Self::with_max_waiting) counts the claims before this one, so a flow that has filled the
    ///   queue keeps no other flow out.
    /// - A flow has no [head start](Self::with_head_start), and a claim with both is not valid. Use a flow for each
    ///   class (`ann/interactive`, `ann/batch`) with [shares](Self::with_share) instead, which starves neither.
    ///
    /// In Redis the flow is written with the permit, as a hash if it is long. So operators see it, and so does everyone
    /// who can read the server's keys. For requests under several limits,
    /// [`with_fair_queues`](crate::ConcurrencyLimitLayer::with_fair_queues) sets it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_semaphore::Claim;
    ///
    /// let model = Claim::new("model-1").with_wait(Duration::from_secs(30));
    /// let of_ann = model.clone().with_flow("ann");
    /// let of_bob = model.with_flow("bob").with_share(4);
    /// assert_eq!(of_bob.flow(), Some(&"bob".into()));
    /// # drop(of_ann);
    /// ```
    pub fn with_flow(self, flow: impl Into<Key>) -> Self {
        self.with_rare(|rare| rare.flow = Some(flow.into()))
    }

    /// Sets the share of the claim's [flow](Self::with_flow): 1 unless set, and [`MAX_SHARE`](super::MAX_SHARE) at
    /// most. While both wait, a flow of share 4 gets four units for each unit of a flow of share 1. Each claim of a
    /// flow counts by its own share.
    pub fn with_share(self, share: u32) -> Self {
        self.with_rare(|rare| rare.share = share)
    }

    /// The flow, if the claim has one. See [`with_flow`](Self::with_flow) for an example.
    pub fn flow(&self) -> Option<&Key> {
        self.rare().flow.as_ref()
    }

    /// The share of its flow. See [`with_share`](Self::with_share).
    pub fn share(&self) -> u32 {
        self.rare().share
    }

    fn rare(&self) -> &Rare {
        self.rare.as_deref().unwrap_or(&Rare::NONE)
    }

    fn with_rare(mut self, change: impl FnOnce(&mut Rare)) -> Self {
        let rare = self.rare.get_or_insert_with(|| Arc::new(Rare::NONE));
        change(Arc::make_mut(rare));
        // The default values become `None`, so that equal claims compare as equal.
        self.rare = self.rare.filter(|rare| **rare != Rare::NONE);
        self
    }

    /// Sets the flow, unless the claim names one.
    pub(crate) fn with_default_flow(self, flow: &Key) -> Self {
        match self.flow() {
            Some(_) => self,
            None => self.with_flow(flow.clone()),
        }
    }

    /// Sets the policy under which the claim counts: [`Policy::DEFAULT`] unless set. One key under
    /// two policies is two semaphores. See [`Claim`] for an example.
    pub fn with_policy(mut self, policy: impl Into<Policy>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Sets a label that operators see beside the permit: a route, a job, a user. It may be any text, and does not
    /// affect the grant. A label of more than [`MAX_LABEL`] bytes is cut at the end of a character, so a label never
    /// makes a claim fail. An empty label counts as none.
    ///
    /// [`Operate::usage`](super::Operate::usage) shows it. In Redis it is written with the permit, so everyone who can
    /// read the server's keys can read it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::Claim;
    ///
    /// let claim = Claim::new("account-42").with_label("GET /market/export");
    /// assert_eq!(claim.label(), Some("GET /market/export"));
    /// assert_eq!(claim.with_label("é".repeat(50)).label(), Some(&*"é".repeat(32)));
    /// ```
    pub fn with_label(self, label: impl Into<Cow<'static, str>>) -> Self {
        let label = shortened(label.into());
        self.with_rare(|rare| rare.label = Some(label).filter(|label| !label.is_empty()))
    }

    /// The label, if it has one. See [`with_label`](Self::with_label).
    pub fn label(&self) -> Option<&str> {
        self.rare().label.as_deref()
    }

    /// Sets whether the claim is strict: false by default. While the store is unavailable, a strict claim is refused
    /// even if the store admits others, and its permit is lost when its lease ends. Use it for work that must not run
    /// twice. The claims of a [`Lock`](crate::Lock) are strict.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::Claim;
    ///
    /// let claim = Claim::new("nightly-report").with_limit(1).with_strict(true);
    /// assert!(claim.is_strict());
    /// ```
    pub fn with_strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// True if the claim is strict. See [`with_strict`](Self::with_strict).
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// Marks the claim of a limit in shadow, whose request is admitted in any case. Such claims are counted separately
    /// among the waiters of the process, so they take no place from claims in force.
    pub(crate) fn on_trial(mut self) -> Self {
        self.is_trial = true;
        self
    }

    /// The claim of a request that is under the limits of these semaphores already.
    pub(crate) fn within(self, outer: &Arc<[SemaphoreId]>) -> Self {
        self.with_rare(|rare| rare.outer = Some(Arc::clone(outer)))
    }

    /// True if an outer limit already counts the claim's request in this semaphore. Such a claim would wait for its
    /// request's own permit. So a store whose claims may wait refuses it at once, with [`AcquireError::full`] and
    /// [`AcquireError::by_semaphore`]. The layer answers the request with status 500: see [nested
    /// limits](crate::ConcurrencyLimitLayer#nested-limits).
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{AcquireError, Claim, semaphore::SemaphoreId};
    ///
    /// fn check(claim: &Claim, held: u32) -> Result<(), AcquireError> {
    ///     let id = SemaphoreId::new(("my store", claim.policy(), claim.key()));
    ///     match claim.is_within(id) {
    ///         true => Err(AcquireError::full(claim, held).by_semaphore(id)),
    ///         false => Ok(()),
    ///     }
    /// }
    /// assert!(check(&Claim::new("account-42").with_limit(5), 5).is_ok());
    /// ```
    pub fn is_within(&self, semaphore: SemaphoreId) -> bool {
        self.outer().contains(&semaphore)
    }

    pub(crate) fn outer(&self) -> &[SemaphoreId] {
        self.rare().outer.as_deref().unwrap_or_default()
    }

    /// Adds the place of an extractor, 0 to 3, to the claim's number. Nested extractors each add theirs, so each path
    /// through them has a separate number. A claim that names its policy needs no number.
    pub(crate) fn of_alternative(mut self, place: u16) -> Self {
        if self.policy.is_none() {
            self.alternative = self.alternative.wrapping_mul(4).wrapping_add(place);
        }
        self
    }

    /// Sets each of these values, unless the claim has it.
    #[inline]
    pub(crate) fn with_defaults(
        mut self,
        policy: &Policy,
        limit: u32,
        wait: Duration,
        max_waiting: u32,
    ) -> Self {
        let alternative = self.alternative;
        self.policy.get_or_insert_with(|| match alternative {
            0 => policy.clone(),
            place => policy.alternative(place),
        });
        self.limit.get_or_insert(limit);
        self.wait.get_or_insert(wait);
        self.max_waiting.get_or_insert(max_waiting);
        self
    }

    /// The key that the claim is for.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{Claim, Policy};
    ///
    /// let claim = Claim::new("account-42");
    /// assert_eq!((claim.key().as_bytes(), claim.policy()), (&b"account-42"[..], &Policy::DEFAULT));
    /// assert_eq!((claim.limit(), claim.weight(), claim.wait()), (None, 1, None));
    /// ```
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The policy under which the claim counts. See [`key`](Self::key) for an example.
    #[inline]
    pub fn policy(&self) -> &Policy {
        // A static, so that two claims without a policy are compared by their pointers.
        static DEFAULT: Policy = Policy::DEFAULT;
        self.policy.as_ref().unwrap_or(&DEFAULT)
    }

    /// The key's limit in units, if the claim sets it. See [`key`](Self::key) for an example.
    pub fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// How many units the claim takes, unless it has an [estimate](Self::estimate). See [`key`](Self::key) for an
    /// example.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// How the claim waits; `None` if it does not wait. See [`key`](Self::key) for an example.
    #[inline]
    pub fn wait(&self) -> Option<Wait> {
        let time = self.wait.filter(|wait| !wait.is_zero())?;
        Some(Wait {
            time,
            max_waiting: self.max_waiting.unwrap_or(DEFAULT_MAX_WAITING),
            head_start: self.rare().head_start,
            is_trial: self.is_trial,
        })
    }

    /// Checks the claim, and returns the units that a store has to count. A store calls this
    /// method first.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Invalid`] for an empty key, a missing limit, a weight out of range, a weight above the limit,
    /// an empty flow, a share out of range, a flow with a head start, an estimate without a window, or a
    /// [budget](Self::with_window), which only the stores of this crate have;
    /// [`AcquireError::Full`] for a limit of 0, which refuses every claim.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::Claim;
    ///
    /// let units = Claim::new("account-42").with_limit(5).with_weight(2).units().unwrap();
    /// assert_eq!((units.limit(), units.weight()), (5, 2));
    /// assert!(Claim::new("account-42").units().is_err(), "it has no limit");
    /// ```
    #[inline]
    pub fn units(&self) -> Result<Units, AcquireError> {
        match &self.rare {
            Some(rare) if rare.window.is_some() => Err(ClaimError::NoBudgets.into()),
            _ => self.check(),
        }
    }

    /// As [`units`](Self::units), for a store that has budgets.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<Units, AcquireError> {
        let limit = self.limit().ok_or(ClaimError::NoLimit)?;
        if self.key().is_empty() {
            return Err(ClaimError::EmptyKey.into());
        }
        self.check_rare()?;
        let units = self.checked_units();
        let weight = units.weight;
        if weight == 0 || units.budget.is_none() && weight > MAX_WEIGHT {
            return Err(ClaimError::Weight { weight }.into());
        }
        match limit {
            0 => Err(AcquireError::full(self, 0)),
            _ if weight > limit => Err(ClaimError::TooHeavy { weight, limit }.into()),
            _ => Ok(units),
        }
    }

    #[inline]
    fn check_rare(&self) -> Result<(), ClaimError> {
        match &self.rare {
            None => Ok(()),
            Some(rare) => rare.check(self.weight),
        }
    }

    /// The units of a claim that was [checked](Self::check) before.
    #[inline]
    pub(crate) fn checked_units(&self) -> Units {
        let (limit, weight) = (self.limit.unwrap_or_default(), self.weight);
        match &self.rare {
            None => Units {
                limit,
                weight,
                budget: None,
            },
            Some(rare) => Units {
                limit,
                weight: rare.estimate.unwrap_or(weight),
                budget: rare.budget(),
            },
        }
    }
}

impl Rare {
    fn check(&self, weight: u32) -> Result<(), ClaimError> {
        match (&self.flow, self.share) {
            (_, share) if share == 0 || share > MAX_SHARE => {
                return Err(ClaimError::Share { share });
            }
            (Some(flow), _) if flow.is_empty() => return Err(ClaimError::EmptyFlow),
            (Some(_), _) if !self.head_start.is_zero() => {
                return Err(ClaimError::FlowWithHeadStart);
            }
            _ => {}
        }
        match (self.window, self.estimate) {
            (None, Some(_)) => Err(ClaimError::EstimateWithoutWindow),
            (_, Some(0)) => Err(ClaimError::EmptyEstimate),
            (_, Some(_)) if weight != 1 => Err(ClaimError::EstimateWithWeight),
            (Some(window), _) if Window::new(window).is_none() => {
                Err(ClaimError::Window { window })
            }
            _ => Ok(()),
        }
    }

    fn budget(&self) -> Option<Budget> {
        let window = Window::new(self.window?)?;
        let charge = self.estimate.map_or(Charge::Grant, |_| Charge::Settlement);
        Some(Budget { window, charge })
    }
}

impl AcquireError {
    /// The refusal of `claim` because its limit has no room: `held` units of its key are in use.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{AcquireError, Claim, semaphore::SemaphoreId};
    ///
    /// let claim = Claim::new("account-42").with_limit(5);
    /// let refused = AcquireError::full(&claim, 5);
    /// assert_eq!(refused.to_string(), "limit reached: 5 of 5 units are held");
    ///
    /// // By a store that has ids.
    /// let id = SemaphoreId::new(("my store", "account-42"));
    /// assert_eq!(refused.by_semaphore(id).semaphore(), Some(id));
    /// ```
    #[cold]
    pub fn full(claim: &Claim, held: u32) -> Self {
        Self::Full {
            policy: claim.policy().clone(),
            limit: claim.limit().unwrap_or_default(),
            held,
            window: claim.window(),
            retry_after: None,
            semaphore: None,
        }
    }

    /// The refusal of `claim` because its wait is over. See [`full`](Self::full) for an example.
    #[cold]
    pub fn timed_out(claim: &Claim) -> Self {
        Self::TimedOut {
            policy: claim.policy().clone(),
            limit: claim.limit().unwrap_or_default(),
            window: claim.window(),
            semaphore: None,
        }
    }

    /// The refusal of `claim` because its key is paused for this time from now on. See [`full`](Self::full) for an
    /// example.
    #[cold]
    pub fn paused(claim: &Claim, retry_after: Duration) -> Self {
        Self::Paused {
            policy: claim.policy().clone(),
            limit: claim.limit().unwrap_or_default(),
            window: claim.window(),
            retry_after,
            semaphore: None,
        }
    }

    /// The refusal of `claim` because its key's queue is full. See [`full`](Self::full) for an example.
    #[cold]
    pub fn queue_full(claim: &Claim) -> Self {
        Self::QueueFull {
            policy: claim.policy().clone(),
            limit: claim.limit().unwrap_or_default(),
            window: claim.window(),
            semaphore: None,
        }
    }
}

impl<K: Into<Key>> From<K> for Claim {
    fn from(key: K) -> Self {
        Self::new(key)
    }
}

/// The limit and the weight of a claim that a store can grant: 1 ≤ weight ≤ limit.
/// [`Claim::units`](super::Claim::units) returns them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Units {
    pub(crate) limit: u32,
    pub(crate) weight: u32,
    pub(crate) budget: Option<Budget>,
}

impl Units {
    /// How many units the key's permits may hold together. See [`Claim::units`](super::Claim::units) for an example.
    pub fn limit(self) -> u32 {
        self.limit
    }

    /// How many units the claim takes. See [`Claim::units`](super::Claim::units) for an example.
    pub fn weight(self) -> u32 {
        self.weight
    }

    /// The number that counts against [`MAX_UNITS`](super::MAX_UNITS): 1 for a budget, whose grant writes one entry for
    /// any number of units.
    pub(crate) fn count(self) -> u32 {
        self.budget.map_or(self.weight, |_| 1)
    }
}

/// How a claim waits. [`Claim::wait`](super::Claim::wait) returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Wait {
    /// The longest time that the claim waits, greater than zero.
    pub time: Duration,
    /// How many claims may wait for the key, up to and including this one, in the order of the queue.
    pub max_waiting: u32,
    /// The time by which the claim counts as having arrived earlier than it did.
    pub head_start: Duration,
    /// True if the limit is in shadow.
    pub(crate) is_trial: bool,
}

fn shortened(mut label: Cow<'static, str>) -> Cow<'static, str> {
    let mut end = MAX_LABEL.min(label.len());
    while !label.is_char_boundary(end) {
        end -= 1;
    }
    match &mut label {
        Cow::Borrowed(text) => *text = &text[..end],
        Cow::Owned(text) => text.truncate(end),
    }
    label
}
