use super::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_shortest_round_trip_is_forgotten_after_a_while() {
    let (mut estimate, start) = (Estimate::default(), Instant::now());
    estimate.observe(MS, start);
    for second in 1..=30 {
        estimate.observe(100 * MS, start + Duration::from_secs(second));
    }
    assert_eq!(
        estimate.shortest.into_iter().flatten().min(),
        Some(100 * MS)
    );
    assert!(estimate.smoothed > 95 * MS && estimate.smoothed < 101 * MS);
}

#[test]
fn a_claim_goes_alone_until_many_units_are_in_flight() {
    let load = Load::new(&Arc::default(), false);
    let heavy = load.alone(1_000).expect("nothing is in flight");
    assert!(load.alone(1).is_none());
    drop(heavy);
    let many: Vec<_> = (0..MAX_ALONE).map(|_| load.alone(1)).collect();
    assert!(many.iter().all(Option::is_some));
    assert!(load.alone(1).is_none());
    drop(many);
    let _together = load.together();
    assert!(load.alone(1).is_none());
}

#[test]
fn the_usual_round_trip_is_that_of_rfc_6298() {
    let (round_trip, start) = (RoundTrip::default(), Instant::now());
    assert_eq!(
        (round_trip.usual(), round_trip.shortest()),
        (Duration::ZERO, Duration::ZERO)
    );
    round_trip.0.lock().observe(100 * MS, start);
    assert_eq!(round_trip.usual(), 300 * MS);
    round_trip.0.lock().observe(200 * MS, start);
    assert_eq!(round_trip.usual(), (112_500 + 4 * 62_500) * MS / 1_000);
    assert_eq!(round_trip.shortest(), 100 * MS);
}

#[test]
fn a_shortest_round_trip_counts_for_one_or_two_windows() {
    let (round_trip, start) = (RoundTrip::default(), Instant::now());
    let observe = |ms: u32, after| round_trip.0.lock().observe(ms * MS, start + after);
    observe(5, Duration::ZERO);
    observe(50, MEMORY);
    observe(50, MEMORY * 2);
    assert_eq!(round_trip.shortest(), 5 * MS);
    observe(50, MEMORY * 3 + MS);
    assert_eq!(round_trip.shortest(), 50 * MS);
}

#[test]
fn what_is_in_flight_is_counted_until_it_is_dropped() {
    let load = Load::new(&Arc::default(), false);
    let (first, second) = (load.alone(3), load.together());
    assert_eq!(load.alone.load(Ordering::Relaxed), 3);
    assert_eq!(load.together.load(Ordering::Relaxed), 1);
    drop((first, second));
    assert_eq!(load.alone.load(Ordering::Relaxed), 0);
    assert_eq!(load.together.load(Ordering::Relaxed), 0);
}
