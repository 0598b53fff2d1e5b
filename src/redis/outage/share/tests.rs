use super::*;
use crate::redis::protocol::PermitId;

fn granted(serial: u64, units: u32) -> Arc<Lease> {
    let lease = Lease::new("p{c:a}".into(), PermitId::new(serial, 20, units));
    lease.admitted();
    Arc::new(lease)
}

fn wanted(units: u32, share: u32) -> [Wanted; 1] {
    let name = "p{c:a}".into();
    [Wanted { name, units, share }]
}

#[test]
fn a_lease_counts_once_until_it_is_released() {
    let counts = Counts::default();
    let lease = granted(1, 3);
    counts.count_all(&[Arc::clone(&lease), Arc::clone(&lease)], 1);
    counts.count(&lease);
    assert!(counts.take(&wanted(1, 3)).is_none());
    assert!(counts.take(&wanted(1, 4)).is_some());
    lease.release();
    counts.released(&lease);
    counts.released(&lease);
    assert!(counts.keys.lock().is_empty());
    assert!(!counts.any.load(Ordering::Relaxed));
}

#[test]
fn a_place_is_passed_on_or_given_back() {
    let counts = Counts::default();
    drop(counts.take(&wanted(2, 2)).expect("there is room"));
    assert!(counts.keys.lock().is_empty());
    let reserved = counts.take(&wanted(2, 2)).expect("it was released");
    let lease = granted(1, 2);
    reserved.pass_on(&[Arc::clone(&lease)]);
    assert!(counts.take(&wanted(1, 2)).is_none());
    let reserved = counts.take(&wanted(1, 3)).expect("there is room");
    let released = granted(2, 1);
    released.release();
    reserved.pass_on(&[released]);
    assert!(counts.take(&wanted(1, 3)).is_some());
}

#[test]
fn all_levels_are_taken_or_none() {
    let counts = Counts::default();
    let [narrow] = wanted(1, 1);
    let name = "p{c:b}".into();
    let wide = Wanted {
        name,
        units: 2,
        share: 1,
    };
    assert!(counts.take(&[narrow, wide]).is_none());
    assert!(counts.keys.lock().is_empty());
}

#[test]
fn keys_are_forgotten() {
    let counts = Counts::default();
    let places = (0..10_000).map(|key| {
        let name = format!("p{{c:{key}}}").into();
        let wanted = [Wanted {
            name,
            units: 1,
            share: 1,
        }];
        counts.take(&wanted).expect("there is room")
    });
    drop(places.collect::<Vec<_>>());
    assert!(counts.keys.lock().capacity() < 100);
}
