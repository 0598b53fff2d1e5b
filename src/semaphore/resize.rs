//! A permit that changes its weight.

use super::{
    AcquireError, BoxFuture, ClaimError, MAX_WEIGHT, Permit, PermitLost, StoreError, Units,
    changing::Changing,
};

impl Permit {
    /// How many units the permit holds; of several limits, of the narrowest. A lost permit has as many
    /// as it would be granted again. A released one has none, if its store can change the weight of a
    /// permit.
    pub fn weight(&self) -> u32 {
        match self.parts() {
            [] => self.0.grant.weight().unwrap_or(self.0.weight),
            [narrowest, ..] => narrowest.weight(),
        }
    }

    /// Changes how many units the permit holds: for work whose cost is known only while it runs,
    /// such as the tokens of an answer that is being streamed.
    ///
    /// A smaller weight is always granted, and lets the next waiters in: when the future is ready, the
    /// store has the units, so that other processes may have them. A lost permit becomes lighter too,
    /// and comes back with the smaller weight. A greater weight is granted if there is room and no claim
    /// waits; else the permit stays as it is. Several limits change together, all or none;
    /// [`levels`](Self::levels) has the permit of each, to change one alone. So it is for the limits of
    /// nested layers.
    ///
    /// Changes of one permit are made one after the other; a release waits for none of them. While the
    /// store cannot be reached, its answer to a smaller weight may take as long as the permit's lease;
    /// by then the units are free by themselves. A caller that does not need that answer may drop the
    /// future after its first poll.
    ///
    /// # Errors
    ///
    /// - [`AcquireError::Invalid`] for a weight of 0, above [`MAX_WEIGHT`] or above the limit, and for
    ///   a store that cannot change the weight of a permit.
    /// - [`AcquireError::Full`] where there is no room for a greater weight.
    /// - [`AcquireError::Closed`] for a greater weight after a shutdown of the store.
    /// - [`AcquireError::Store`] if the store failed with a greater weight, or with
    ///   [`PermitLost`](super::PermitLost) as its source if the permit is released, or is lost and should
    ///   become heavier.
    ///
    /// After an error the permit has the weight that it had. What was added at the narrower limits
    /// before a wider one refused is released as by a drop.
    ///
    /// # Panics
    ///
    /// For a greater weight, as [`Semaphore::acquire`](super::Semaphore::acquire) does: the store in
    /// Redis needs a Tokio runtime. A smaller weight needs none.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the permit has its old weight or the new one, at all of its limits, and
    /// [`weight`](Self::weight) says which. A smaller weight that waits for no other change counts from
    /// the first poll on.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let claim = Claim::new("account-42").with_limit(5);
    /// let permit = semaphore.acquire(claim.clone().with_weight(5)).await.unwrap();
    ///
    /// permit.resize(3).await.unwrap();
    /// let other = semaphore.acquire(claim.with_weight(2)).await.unwrap();
    /// assert!(permit.resize(4).await.is_err());
    /// assert_eq!(permit.weight(), 3);
    /// # drop(other);
    /// # }
    /// ```
    pub async fn resize(&self, weight: u32) -> Result<(), AcquireError> {
        self.change(weight, true).await
    }

    /// Changes the weight as [`resize`](Self::resize) does, unless it is as great already.
    pub(crate) async fn grow_to(&self, weight: u32) -> Result<(), AcquireError> {
        match weight > self.weight() {
            true => self.change(weight, false).await,
            false => Ok(()),
        }
    }

    async fn change(&self, weight: u32, shrinks: bool) -> Result<(), AcquireError> {
        if weight == 0 || weight > MAX_WEIGHT {
            return Err(ClaimError::Weight { weight }.into());
        }
        let levels = self.leaves();
        // A limit on trial refuses nobody.
        let in_force = levels.iter().filter(|level| !level.is_shadow());
        for limit in in_force.map(|level| level.limit()) {
            if weight > limit {
                return Err(ClaimError::TooHeavy { weight, limit }.into());
            }
        }
        // Held to the end, and longer than what is undone by a drop.
        let _changing = Changing::begin(&levels).await;
        let held = levels.iter().map(|level| level.units());
        let held = held.collect::<Result<Vec<_>, _>>()?;
        let levels: Vec<_> = levels.into_iter().zip(held).collect();
        let mut grown = grow(&levels, weight).await?;
        // One may have been released meanwhile, which undoes the growth of the others.
        for (level, _) in &levels {
            level.units()?;
        }
        grown.0.clear();
        match shrinks {
            true => shrink(&levels, weight).await,
            false => Ok(()),
        }
    }

    /// The permits of single limits that it is made of, from the narrowest to the widest.
    pub(super) fn leaves(&self) -> Vec<&Self> {
        match self.parts() {
            [] => vec![self],
            parts => parts.iter().flat_map(Self::leaves).collect(),
        }
    }

    /// How many units a permit of one limit holds, if that can be changed.
    fn units(&self) -> Result<u32, AcquireError> {
        match self.0.grant.weight() {
            None => Err(ClaimError::FixedWeight.into()),
            Some(0) => Err(StoreError::new(PermitLost).into()),
            Some(units) => Ok(units),
        }
    }

    /// The refusal of a permit of one limit names its policy, which its grant need not know.
    fn named(&self, error: AcquireError) -> AcquireError {
        match error {
            AcquireError::Full { limit, held, .. } => {
                let policy = self.policy().clone();
                AcquireError::Full {
                    policy,
                    limit,
                    held,
                }
            }
            error => error,
        }
    }
}

/// A permit of one limit, and how many units it holds.
type Level<'a> = (&'a Permit, u32);

/// Grows the levels that are too light, from narrow to wide: all or none.
async fn grow<'a>(levels: &[Level<'a>], weight: u32) -> Result<Grown<'a>, AcquireError> {
    let mut grown = Grown(Vec::new());
    for (level, held) in levels {
        let units = weight.saturating_sub(*held);
        if units > 0 {
            let more = Units {
                limit: level.limit(),
                weight: units,
            };
            let answer = level.0.grant.grow(more).await;
            answer.map_err(|error| level.named(error))?;
            grown.0.push((level, units));
        }
    }
    Ok(grown)
}

/// Shrinks the levels that are too heavy: all are queued before the first is awaited.
async fn shrink(levels: &[Level<'_>], weight: u32) -> Result<(), AcquireError> {
    let heavier = levels.iter().filter(|(_, held)| *held > weight);
    let shrunk = heavier.map(|(level, held)| level.0.grant.shrink(held - weight));
    let shrunk: Vec<Result<BoxFuture<()>, _>> = shrunk.collect();
    for freed in shrunk {
        freed?.await;
    }
    Ok(())
}

/// Levels that have grown, and by how much. Dropped before all have, because one refused or the change
/// was dropped, they shrink again: by as much, and without waiting for an answer.
struct Grown<'a>(Vec<Level<'a>>);

impl Drop for Grown<'_> {
    fn drop(&mut self) {
        for (level, units) in self.0.drain(..) {
            // A failure means that it was released meanwhile.
            drop(level.0.grant.shrink(units));
        }
    }
}
