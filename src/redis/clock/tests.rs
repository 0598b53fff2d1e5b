use super::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_time_that_is_too_long_ends_in_a_year() {
    let start = Instant::now();
    assert_eq!(at(start, 5 * MS), start + 5 * MS);
    assert_eq!(at(start, Duration::MAX), start + YEAR);
    assert_eq!(YEAR.as_secs(), 31_536_000);
    assert!(after(Duration::MAX) >= start + YEAR);
}
