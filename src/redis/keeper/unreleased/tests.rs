use super::*;

type Settled = oneshot::Receiver<bool>;

/// Has a claim wait. Returns what it hurries.
fn settle(unreleased: &mut Unreleased) -> (Settled, Vec<u64>) {
    let (sender, settled) = oneshot::channel();
    let hurried = unreleased.settle("a", sender);
    (settled, hurried.map(|(_, number)| number).collect())
}

fn unreleased(numbers: impl IntoIterator<Item = u64>) -> Unreleased {
    let (mut unreleased, due) = (Unreleased::default(), Instant::now());
    let insert = |number| unreleased.insert("a".into(), number, due);
    numbers.into_iter().for_each(insert);
    unreleased
}

#[test]
fn where_nothing_is_unreleased_nobody_waits() {
    let (mut settled, hurried) = settle(&mut unreleased([]));
    assert_eq!((settled.try_recv(), hurried), (Ok(false), vec![]));
}

#[test]
fn a_claim_waits_for_all_releases_before_it_and_hurries_each_once() {
    let mut releases = unreleased([1, 2]);
    let (mut first, hurried) = settle(&mut releases);
    assert_eq!(hurried, [1, 2]);
    releases.insert("a".into(), 3, Instant::now());
    let (mut second, hurried) = settle(&mut releases);
    assert_eq!(hurried, [3]);
    releases.remove("a", 2);
    assert!(first.try_recv().is_err());
    releases.remove("a", 1);
    assert_eq!(first.try_recv(), Ok(true));
    assert!(second.try_recv().is_err());
    releases.remove("a", 3);
    assert_eq!(second.try_recv(), Ok(true));
    assert!(releases.0.is_empty());
}

#[test]
fn a_claim_does_not_wait_for_a_later_release_although_an_earlier_one_is_sent_again() {
    let mut releases = unreleased([5]);
    let (mut settled, _) = settle(&mut releases);
    releases.insert("a".into(), 6, Instant::now());
    releases.answered("a", 5, Instant::now());
    assert_eq!(settled.try_recv(), Ok(true));
}

#[test]
fn an_answered_release_that_may_have_to_run_again_is_hurried_by_the_next_claim() {
    let mut releases = unreleased([1]);
    releases.answered("a", 1, Instant::now());
    let (mut settled, hurried) = settle(&mut releases);
    assert_eq!(hurried, [1]);
    assert!(settled.try_recv().is_err());
    releases.remove("a", 1);
    assert_eq!(settled.try_recv(), Ok(true));
}

#[test]
fn a_release_without_an_answer_is_remembered_beside_one_that_was_answered() {
    let mut releases = unreleased([1, 2]);
    releases.remove("a", 1);
    assert_eq!(settle(&mut releases).1, [2]);
    // Hurried, and not answered yet.
    releases.remove("a", 7);
    let (mut settled, hurried) = settle(&mut releases);
    assert!(hurried.is_empty());
    assert!(settled.try_recv().is_err());
}
