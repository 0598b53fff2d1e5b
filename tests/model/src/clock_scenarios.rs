//! The walks in which the clock leaps or is set back.

use crate::{
    scenario::{Level, Scenario},
    time::{LEASE, TICK},
};

/// The clock leaps by seven and by nine leases, so keys expire.
pub(crate) fn leaps() -> Scenario {
    let claims = || vec![vec![Level::waiting(0, 1)], vec![Level::waiting(0, 2)]];
    Scenario {
        late: 0,
        leaps: (vec![7 * LEASE + 2 * TICK, 9 * LEASE], 3),
        ..Scenario::new("leaps", vec![claims(), claims()], 20_000)
    }
}

/// The clock is set back by two ticks and by twenty leases, and leaps by seven leases while a process
/// lives that tells the highest time.
pub(crate) fn set_back() -> Scenario {
    let claims = || vec![vec![Level::waiting(0, 1)]];
    Scenario {
        late: 0,
        has_clock: true,
        leaps: (vec![-2 * TICK, -20 * LEASE, 7 * LEASE + TICK], 3),
        ..Scenario::new("set back", vec![claims(), claims(), claims()], 15_000)
    }
}

/// Claims with head starts join a queue before and after the clock is set back.
pub(crate) fn set_back_queue() -> Scenario {
    let early = || Level {
        head_start: 2 * TICK,
        ..Level::waiting(0, 1)
    };
    let plain = || vec![Level::waiting(0, 1)];
    Scenario {
        loses: false,
        crashes: false,
        leaps: (vec![-2 * TICK], 1),
        clients: vec![
            vec![plain()],
            vec![vec![early()]],
            vec![vec![early()], plain()],
        ],
        name: "set back queue",
        ..set_back()
    }
}

/// One client that loses nothing, so that the counter of tokens expires after the clock was set
/// back.
pub(crate) fn restart_of_tokens() -> Scenario {
    let clients = vec![vec![
        vec![Level::waiting(0, 2).of(2)],
        vec![Level::waiting(0, 1)],
    ]];
    Scenario {
        loses: false,
        crashes: false,
        clients,
        name: "restart of tokens",
        ..set_back()
    }
}

/// The same where the claims are sent as those for several levels.
pub(crate) fn several_restarts_of_tokens() -> Scenario {
    Scenario {
        name: "several restarts of tokens",
        ..restart_of_tokens()
    }
}
