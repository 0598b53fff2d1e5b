use super::*;
use crate::redis::transport::Unused;
use futures_util::FutureExt;

fn notifications() -> Notifications {
    let one_server = true;
    Notifications::new(Arc::new(Unused { one_server }), "p:", "process").0
}

#[test]
fn a_slot_is_in_use_until_its_claim_ends() {
    let notifications = notifications();
    let slot = |serials, most| notifications.register(serials, false, most);
    let (first, second) = (slot(1..3, 2), slot(3..4, 2));
    assert!(first.is_some() && second.is_some() && slot(4..5, 2).is_none());
    let on_trial = notifications.register(5..6, true, 1);
    assert!(on_trial.is_some() && notifications.register(6..7, true, 1).is_none());
    drop(first);
    assert!(slot(4..5, 2).is_some());
    drop((second, on_trial));
    let waiters = notifications.waiters.lock();
    assert_eq!((waiters.slots, waiters.by_serial.len()), ([0, 0], 0));
}

#[test]
fn a_waiter_is_notified_of_a_grant_since_its_last_poll_or_to_poll() {
    let notifications = notifications();
    let slot = notifications
        .register(0x1a..0x1c, false, 1)
        .expect("it is free");
    let granted = |message| {
        notifications.notify(message);
        let notice = slot.granted_after(7).now_or_never();
        notice.map(|Notice { token, held }| (token, held))
    };
    assert_eq!(granted("1a 8 3"), Some((8, 3)));
    assert_eq!(granted("1b 9 1"), Some((9, 1)));
    assert_eq!(granted("1a 0 2"), Some((0, 2)));
    assert_eq!(granted("1a 7 3"), None, "it is out of date");
    assert_eq!(granted("1a 6 3"), None, "it is out of date");
    assert_eq!(granted("1c 8 3"), None, "it is another's");
    for message in ["", "1a", "1a 8", "1z 8 3", "1a -8 3", "1a 8 x"] {
        assert_eq!(granted(message), None, "{message}");
    }
}
