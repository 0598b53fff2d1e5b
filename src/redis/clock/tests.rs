use super::*;

#[test]
fn a_slow_answer_hardly_moves_the_estimate() {
    assert_eq!(estimate(1_000_000, 744_000), 999_000);
}

#[test]
fn a_quick_answer_and_a_clock_that_was_set_back_replace_it() {
    assert_eq!(estimate(1_000_000, 1_000_001), 1_000_001);
    assert_eq!(estimate(3_600_000_000, 0), 0);
    assert_eq!(estimate(UNKNOWN, -5), -5);
}

#[test]
fn tokens_begin_above_all_times_that_a_clock_has_shown_before_it_was_set_back() {
    let clock = ServerClock::new(Times::new(
        Duration::from_secs(10),
        Duration::from_millis(250),
    ));
    clock.observe(5_000_000);
    clock.observe(1_400_000);
    assert!(clock.floor() >= 5_000_000_000);
    assert!(clock.at(Instant::now()) < 1_500_000);
}

#[test]
fn a_waiter_survives_a_heartbeat_that_timed_out() {
    let times = Times::new(Duration::from_millis(300), Duration::from_millis(100));
    assert!(times.alive() >= times.heartbeat_interval() + times.timeout * 2);
    assert!(times.alive() <= times.lease);
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn the_lengths_of_time_follow_from_the_lease_and_the_timeout() {
    let times = Times::new(12_000 * MS, 250 * MS);
    assert_eq!(times.budget(), 500 * MS);
    assert_eq!(times.refresh_interval(), 4_000 * MS);
    assert_eq!(times.announcement_interval(), 4_000 * MS);
    assert_eq!(times.reacquire_interval(), None);
    assert_eq!((times.slot_interval(), times.tick()), (250 * MS, 250 * MS));
    assert_eq!(times.heartbeat_interval(), 1_000 * MS);
    assert_eq!(times.alive(), 3_000 * MS);
}

#[test]
fn a_long_lease_makes_no_ticks_heartbeats_or_announcements_rare() {
    let times = Times::new(3_600_000 * MS, 250 * MS);
    assert_eq!(
        (times.slot_interval(), times.tick()),
        (75_000 * MS, 1_000 * MS)
    );
    assert_eq!(times.heartbeat_interval(), 5_000 * MS);
    assert_eq!(times.announcement_interval(), 5_000 * MS);
    assert_eq!(times.reacquire_interval(), Some(5_000 * MS));
    assert_eq!(times.alive(), 15_000 * MS);
}

#[test]
fn a_lease_counts_as_over_before_the_server_ends_it() {
    let times = Times::new(12_000 * MS, 250 * MS);
    let sent = times.birth + 1_000 * MS;
    assert_eq!(times.micros(sent), 1_000_000);
    assert_eq!(times.held_until(sent), 12_400_000);
    assert_eq!(times.provisional_until(sent), 3_400_000);
}

#[test]
fn a_grant_counts_as_over_before_its_waiter_does() {
    // The twentieth of a lease, or the fifth of the time that a waiter counts as alive.
    let slow = Times::new(1_200 * MS, 1_000 * MS);
    assert_eq!(slow.alive(), 2_100 * MS);
    assert_eq!(slow.provisional_until(slow.birth), 2_040_000);
    let long = Times::new(3_600_000 * MS, 250 * MS);
    assert_eq!(long.provisional_until(long.birth), 12_000_000);
}

#[test]
fn a_time_that_is_too_long_ends_in_a_year() {
    let start = Instant::now();
    assert_eq!(at(start, 5 * MS), start + 5 * MS);
    assert_eq!(at(start, Duration::MAX), start + YEAR);
    assert_eq!(YEAR.as_secs(), 31_536_000);
    assert!(after(Duration::MAX) >= start + YEAR);
}

#[test]
fn the_server_s_time_goes_on_between_two_answers() {
    let clock = ServerClock::new(Times::new(12_000 * MS, 250 * MS));
    assert!(!clock.is_known());
    clock.observe(7_000_000);
    assert!(clock.is_known());
    let (now, birth) = (Instant::now(), clock.times.birth);
    let at = |later| clock.at(now + later) as i128;
    assert!(
        (at(Duration::ZERO) - 7_000_000).abs() < 60_000,
        "a minute of this test's own"
    );
    assert_eq!(at(5_000 * MS), at(Duration::ZERO) + 5_000);
    assert!(clock.at(birth) <= 7_000_000);
    clock.raise(9_000_000_000);
    let floor = clock.floor();
    assert!((9_000_000_000..9_060_000_000).contains(&floor), "{floor}");
    clock.raise(1);
    assert!(clock.floor() >= floor);
}

#[test]
fn a_sample_counts_as_slow_up_to_two_seconds() {
    assert_eq!(estimate(3_000_000, 1_000_000), 3_000_000 - 2_000_000 / 256);
    assert_eq!(estimate(3_000_001, 1_000_000), 1_000_000);
}
