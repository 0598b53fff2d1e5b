//! The walks in which operators revoke permits.

use crate::{
    scenario::{Claim, Level, Scenario},
    time::{LEASE, REMEMBER, TICK},
};

/// Every scenario with revocations.
pub(crate) fn all() -> Vec<Scenario> {
    vec![
        revoked(),
        revoked_queue(),
        revoked_units(),
        revoked_added(),
        revoked_levels(),
        revoked_at_once(),
        revoked_long_ago(),
        revoked_set_back(),
    ]
}

fn revoking(name: &'static str, clients: Vec<Vec<Claim>>, states: usize) -> Scenario {
    Scenario {
        revokes: true,
        ..Scenario::new(name, clients, states)
    }
}

/// Two clients, of which one may come with a higher limit. All that can go wrong does.
fn revoked() -> Scenario {
    let waiting = |limit| vec![Level::waiting(0, limit)];
    let clients = vec![vec![waiting(1)], vec![waiting(1), waiting(2)]];
    revoking("revoked", clients, 10_000)
}

/// A holder, and two in the queue, of whom one has a head start.
fn revoked_queue() -> Scenario {
    let waiting = || vec![Level::waiting(0, 1)];
    let early = Level {
        head_start: 2 * TICK,
        ..Level::waiting(0, 1)
    };
    Scenario {
        late: 0,
        crashes: false,
        ..revoking(
            "revoked queue",
            vec![vec![waiting()], vec![waiting()], vec![vec![early]]],
            10_000,
        )
    }
}

/// Permits of two units, which may become lighter.
fn revoked_units() -> Scenario {
    let heavy = || vec![Level::waiting(0, 2).of(2)];
    let light = || vec![Level::waiting(0, 2)];
    Scenario {
        lightens: true,
        crashes: false,
        ..revoking(
            "revoked units",
            vec![vec![heavy(), light()], vec![heavy()]],
            10_000,
        )
    }
}

/// Units that were added to a permit are revoked with it, and only with it.
fn revoked_added() -> Scenario {
    let level = Level::waiting(0, 4);
    let added = |to| vec![vec![Level::trying(0, 4).of(2).added_to(to)]];
    let one = vec![Level::trying(0, 4).added_to(1)];
    let clients = vec![vec![vec![level]], vec![vec![level]], added(1), vec![one]];
    Scenario {
        late: 0,
        loses: false,
        crashes: false,
        ..revoking("revoked added", clients, 10_000)
    }
}

/// Claims for two levels, of which one is revoked.
fn revoked_levels() -> Scenario {
    let both = || vec![Level::waiting(0, 1), Level::waiting(1, 1)];
    let wide = vec![Level::waiting(1, 1)];
    Scenario {
        crashes: false,
        ..revoking(
            "revoked levels",
            vec![vec![both(), wide], vec![both()]],
            10_000,
        )
    }
}

/// Two clients make a call together, and one of them was revoked.
fn revoked_at_once() -> Scenario {
    let waiting = || vec![vec![Level::waiting(0, 1)]];
    Scenario {
        has_batches: true,
        late: 0,
        crashes: false,
        ..revoking(
            "revoked at once",
            vec![waiting(), waiting(), waiting()],
            10_000,
        )
    }
}

/// So much time passes that revocations are forgotten.
fn revoked_long_ago() -> Scenario {
    let trying = || vec![vec![Level::trying(0, 1)]];
    Scenario {
        late: 0,
        loses: false,
        crashes: false,
        leaps: (vec![REMEMBER / 2 + TICK], 2),
        ..revoking(
            "revoked long ago",
            vec![trying(), trying(), trying()],
            16_000,
        )
    }
}

/// The clock is set back, and a client may wait.
fn revoked_set_back() -> Scenario {
    let waiting = || vec![vec![Level::waiting(0, 1)]];
    Scenario {
        late: 0,
        loses: false,
        crashes: false,
        has_clock: true,
        leaps: (vec![-2 * TICK, 7 * LEASE + TICK], 3),
        ..revoking("revoked set back", vec![waiting(), waiting()], 10_000)
    }
}
