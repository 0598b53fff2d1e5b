use super::*;
use crate::redis::protocol::PermitId;

const SECOND: Duration = Duration::from_secs(1);

/// A schedule with one lease that was granted just now for a minute.
fn schedule() -> (Schedule, Arc<Lease>) {
    let mut schedule = Schedule::new(Times::new(60 * SECOND, SECOND));
    let (serial, limit, weight) = (1, 1, 1);
    let permit = PermitId {
        serial,
        limit,
        weight,
    };
    let lease = Arc::new(Lease::new("p{c:a}".into(), permit));
    lease.granted(1, schedule.times.held_until(Instant::now()));
    schedule.adopt(vec![Arc::clone(&lease)]);
    (schedule, lease)
}

#[test]
fn a_suspended_machine_ends_leases_sooner() {
    let (mut schedule, lease) = schedule();
    assert!(schedule.note(Gap::Suspended(61 * SECOND), Instant::now()));
    assert!(lease.is_past(schedule.times.now()));
}

#[test]
fn a_doubt_counts_only_for_a_lease_that_the_server_could_be_asked_neither_time() {
    let (mut schedule, lease) = schedule();
    assert!(schedule.note(Gap::Doubtful(61 * SECOND), Instant::now()));
    schedule.refreshed(vec![Arc::clone(&lease)]);
    assert!(!lease.is_lost());
    schedule.refreshed_again(vec![Arc::clone(&lease)]);
    assert!(lease.is_lost());
}
