//! The walks in which requests of two clients travel together.

use crate::scenario::{Level, Scenario};

/// Two requests travel together, nothing is late, and nobody crashes: so the walk goes farther.
pub(crate) fn batches() -> Scenario {
    let claims = || vec![vec![Level::waiting(0, 1)], vec![Level::trying(0, 1)]];
    let third = vec![vec![Level::waiting(0, 1)], vec![Level::waiting(1, 2)]];
    Scenario {
        has_messages: true,
        has_batches: true,
        late: 0,
        crashes: false,
        loses: false,
        ..Scenario::new("batches", vec![claims(), claims(), third], 40_000)
    }
}

/// What is granted together is written at once: units of one key or of two, and tokens.
pub(crate) fn granted_together() -> Scenario {
    let claims = || vec![vec![Level::trying(0, 2)], vec![Level::trying(1, 2)]];
    Scenario {
        has_batches: true,
        late: 0,
        crashes: false,
        loses: false,
        ..Scenario::new(
            "granted together",
            vec![claims(), claims(), claims()],
            20_000,
        )
    }
}

/// Two clients make a call together, each for a key of its own or both for one.
pub(crate) fn at_once() -> Scenario {
    let waiting = || vec![vec![Level::waiting(1, 1)]];
    let third = vec![vec![Level::waiting(0, 2)], vec![Level::waiting(1, 2)]];
    Scenario {
        has_batches: true,
        late: 0,
        crashes: false,
        loses: false,
        ..Scenario::new("at once", vec![waiting(), waiting(), third], 20_000)
    }
}

/// The same with claims for two levels and for two units among them.
pub(crate) fn several_at_once() -> Scenario {
    let waiting = || vec![vec![Level::waiting(1, 1)]];
    let both = vec![Level::waiting(0, 2), Level::waiting(1, 2)];
    let heavy = vec![Level::waiting(1, 3).of(2)];
    let third = vec![both, vec![Level::waiting(0, 2)], heavy];
    Scenario {
        name: "several at once",
        clients: vec![waiting(), waiting(), third],
        ..at_once()
    }
}

/// A claim for one key, and a claim for another one beside room for which others wait.
pub(crate) fn passing_at_once() -> Scenario {
    let waiting = |key, limit| vec![vec![Level::waiting(key, limit)]];
    Scenario {
        name: "passing at once",
        clients: vec![waiting(1, 2), waiting(1, 1), waiting(0, 1), waiting(1, 1)],
        states: 1_000,
        ..at_once()
    }
}
