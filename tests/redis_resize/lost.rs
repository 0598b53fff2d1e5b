//! Permits of several leases of which some are lost.

use crate::{BOUND, HELD, LEASE, claim, fixture, grown, loses, occupy, until_held, vacate};
use testing::{resp::Raw, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{Permit, Semaphore};

/// Removes units, and lets somebody else have as many.
async fn lose(permit: &Permit, raw: &mut Raw, units: &[Vec<u8>]) {
    let disaster = async {
        for unit in units {
            raw.cmd(&[b"ZREM", HELD.as_bytes(), unit]).await;
        }
        occupy(raw, HELD, units.len()).await;
    };
    loses(permit, disaster).await;
}

/// The units that were added to a permit of one.
async fn added(raw: &mut Raw, first: &[u8]) -> Vec<Vec<u8>> {
    let units = raw.zmembers(HELD).await.into_iter().map(|(unit, _)| unit);
    units.filter(|unit| unit != first).collect()
}

#[tokio::test]
async fn a_permit_is_lost_as_long_as_a_part_of_it_is() {
    let (_server, store, mut raw) = fixture().await;
    let permit = grown(&store, 2, 2).await;
    let disaster = async {
        raw.cmd(&["DEL", HELD]).await;
        occupy(&mut raw, HELD, 1).await;
    };
    loses(&permit, disaster).await;
    // One unit is granted again. For the other there is no room.
    until_held(&mut raw, 2).await;
    sleep(LEASE).await;
    assert!(permit.is_lost() && permit.weight() == 2);
    vacate(&mut raw, HELD, 1).await;
    eventually("it is back", BOUND, async || !permit.is_lost()).await;
    assert_eq!(raw.zcard(HELD).await, 2);
}

#[tokio::test]
async fn a_permit_that_gave_up_its_lost_part_is_held() {
    let (_server, store, mut raw) = fixture().await;
    let permit = grown(&store, 2, 2).await;
    let units = raw.zmembers(HELD).await;
    let (added, _) = units.last().expect("two units").clone();
    lose(&permit, &mut raw, &[added]).await;
    permit.resize(1).await.expect("a lost part is given up");
    eventually("it is held", BOUND, async || !permit.is_lost()).await;
    sleep(LEASE).await;
    assert!(!permit.is_lost() && permit.weight() == 1);
    assert!(permit.release().await);
}

#[tokio::test]
async fn a_lost_permit_that_became_lighter_comes_back_lighter() {
    let (_server, store, mut raw) = fixture().await;
    let permit = store.acquire(claim(4)).await.expect("there is room");
    let (first, _) = raw.zmembers(HELD).await.remove(0);
    permit.resize(4).await.expect("there is room");
    let units = added(&mut raw, &first).await;
    lose(&permit, &mut raw, &units).await;
    assert!(permit.resize(3).await.is_ok() && permit.is_lost());
    assert!(
        permit.resize(4).await.is_err(),
        "a lost permit does not grow"
    );
    vacate(&mut raw, HELD, 3).await;
    eventually("it is back", BOUND, async || !permit.is_lost()).await;
    until_held(&mut raw, 3).await;
    sleep(LEASE).await;
    assert_eq!((raw.zcard(HELD).await, permit.weight()), (3, 3));
}

/// What it has left is no obstacle to its return, and it is not taken for held because of that.
#[tokio::test]
async fn a_heavy_permit_that_has_lost_some_units_comes_back_whole() {
    for lost in [0, 2] {
        let (_server, store, mut raw) = fixture().await;
        let permit = store.acquire(claim(3).with_weight(3)).await;
        let permit = permit.expect("there is room");
        let (unit, _) = raw.zmembers(HELD).await.remove(lost);
        lose(&permit, &mut raw, &[unit]).await;
        vacate(&mut raw, HELD, 1).await;
        eventually("it is back", LEASE * 2, async || !permit.is_lost()).await;
        sleep(LEASE).await;
        assert_eq!((raw.zcard(HELD).await, permit.is_lost()), (3, false));
        assert!(permit.release().await);
    }
}
