//! Random load over a slow, cut, silent or healthy link, with processes that are killed.
//!
//! Every claim is answered within its budget, refusals are refusals, and when all is over nothing
//! is held, queued or pending, in Redis and in the process. Each run has two keys at a time: one
//! whose callers are as many as its limit, and one with ten times as many.
//!
//! `SOAK_SEED=0x… cargo test --test soak store::NAME` repeats the random choices of a run, and
//! `SOAK_SECONDS=600` makes each run as long.

mod lateness;
mod link;
mod load;
mod oracle;
mod plan;
mod residue;
mod run;
mod victim;

use plan::Fault;

/// A run for each length of the link, as its round trip.
macro_rules! over_a_link_of {
    ($fault:expr) => {
        use super::{Fault, run::soak};

        #[test]
        fn over_a_link_of_1_ms() {
            soak($fault, 1);
        }

        #[test]
        fn over_a_link_of_2_ms() {
            soak($fault, 2);
        }

        #[test]
        fn over_a_link_of_20_ms() {
            soak($fault, 20);
        }

        #[test]
        fn over_a_link_of_100_ms() {
            soak($fault, 100);
        }
    };
}

mod claims_are_answered_in_time_and_leave_nothing_behind {
    over_a_link_of!(Fault::None);
}

mod claims_are_answered_in_time_and_leave_nothing_behind_when_the_link_is_cut {
    over_a_link_of!(Fault::Cuts);
}

mod claims_are_answered_in_time_and_leave_nothing_behind_when_the_link_goes_silent {
    over_a_link_of!(Fault::Silence);
}

mod claims_are_answered_in_time_and_leave_nothing_behind_when_a_process_is_killed {
    over_a_link_of!(Fault::Kill);
}
