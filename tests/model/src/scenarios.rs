//! The walks.

use crate::{
    batch_scenarios::{at_once, batches, granted_together, passing_at_once, several_at_once},
    clock_scenarios::{
        leaps, restart_of_tokens, set_back, set_back_queue, several_restarts_of_tokens,
    },
    revoke_scenarios,
    scenario::{Level, Scenario},
    time::TICK,
};

/// Every scenario. The first ones are the cheapest.
pub fn all() -> Vec<Scenario> {
    let all = vec![
        one_key(),
        three_clients(),
        two_keys(),
        batches(),
        granted_together(),
        at_once(),
        several_at_once(),
        passing_at_once(),
        levels(),
        crowded_levels(),
        weights(),
        head_starts(),
        several_head_starts(),
        short_queue(),
        bounded_grants(),
        bounded_removals(),
        leaps(),
        set_back(),
        set_back_queue(),
        restart_of_tokens(),
        several_restarts_of_tokens(),
        no_refresh(),
    ];
    [all, revoke_scenarios::all()].concat()
}

/// The scenario of this name.
///
/// # Panics
///
/// If there is none.
pub fn named(name: &str) -> Scenario {
    let found = all().into_iter().find(|scenario| scenario.name == name);
    found.unwrap_or_else(|| panic!("there is no scenario {name}"))
}

/// A claim waits or tries, and its limit is 1 or 2, so the key is resized.
fn one_key() -> Scenario {
    let claims = || {
        vec![
            vec![Level::waiting(0, 1)],
            vec![Level::trying(0, 1)],
            vec![Level::waiting(0, 2)],
        ]
    };
    Scenario::new("one key", vec![claims(), claims()], 40_000)
}

/// A holder, and a queue of two.
fn three_clients() -> Scenario {
    let waiting = |limit| vec![Level::waiting(0, limit)];
    let clients = vec![
        vec![waiting(1)],
        vec![waiting(1), waiting(2)],
        vec![waiting(1)],
    ];
    Scenario::new("three clients", clients, 40_000)
}

/// Two keys with limits 1 and 2. Requests, replies and messages are under way, and two requests may
/// travel together.
fn two_keys() -> Scenario {
    let claims = || vec![vec![Level::waiting(0, 1)], vec![Level::waiting(1, 2)]];
    Scenario {
        has_messages: true,
        has_batches: true,
        ..Scenario::new("two keys", vec![claims(), claims(), claims()], 500_000)
    }
}

/// Claims for a narrow and a wide limit, of which each waits, and claims for the wide one alone.
fn levels() -> Scenario {
    let both = || vec![Level::waiting(0, 1), Level::waiting(1, 1)];
    let narrow_only = vec![Level::waiting(0, 1), Level::trying(1, 1)];
    let wide = vec![Level::waiting(1, 1)];
    let trying = vec![Level::trying(0, 1), Level::trying(1, 2)];
    Scenario {
        ..Scenario::new(
            "levels",
            vec![vec![both(), wide], vec![both(), narrow_only, trying]],
            40_000,
        )
    }
}

/// Three claims for two levels.
fn crowded_levels() -> Scenario {
    let both = || vec![Level::waiting(0, 2), Level::waiting(1, 1)];
    let clients = vec![
        vec![both()],
        vec![both()],
        vec![vec![Level::waiting(0, 2)], both()],
    ];
    Scenario {
        crashes: false,
        late: 0,
        ..Scenario::new("crowded levels", clients, 20_000)
    }
}

/// Claims for two units, which may become lighter, and for one.
fn weights() -> Scenario {
    let heavy = || vec![Level::waiting(0, 2).of(2)];
    let light = || vec![Level::waiting(0, 2)];
    let trying = vec![Level::trying(0, 2).of(2)];
    Scenario {
        lightens: true,
        late: 2,
        ..Scenario::new(
            "weights",
            vec![vec![heavy(), light()], vec![heavy(), trying], vec![light()]],
            60_000,
        )
    }
}

/// A light claim with a head start comes before a heavy one that does not fit.
fn head_starts() -> Scenario {
    let early = Level {
        head_start: 2 * TICK,
        ..Level::waiting(0, 2)
    };
    let clients = vec![
        vec![vec![Level::waiting(0, 2)]],
        vec![vec![Level::waiting(0, 2).of(2)]],
        vec![vec![early], vec![Level::waiting(0, 2)]],
    ];
    Scenario {
        late: 0,
        ..Scenario::new("head starts", clients, 20_000)
    }
}

/// The same where the claims are for several levels.
fn several_head_starts() -> Scenario {
    let early = Level {
        head_start: 2 * TICK,
        ..Level::waiting(0, 2)
    };
    let clients = vec![
        vec![vec![Level::waiting(0, 2)]],
        vec![vec![Level::waiting(0, 2).of(2)]],
        vec![vec![early, Level::waiting(1, 1)]],
    ];
    Scenario {
        late: 0,
        ..Scenario::new("several head starts", clients, 20_000)
    }
}

/// Two claims may wait, and four come, one of them with a head start.
fn short_queue() -> Scenario {
    let level = Level {
        waits: Some(2),
        ..Level::waiting(0, 1)
    };
    let early = Level {
        head_start: 2 * TICK,
        ..level
    };
    let clients = [level, level, level, early].map(|level| vec![vec![level]]);
    Scenario {
        late: 0,
        loses: false,
        ..Scenario::new("short queue", clients.into(), 15_000)
    }
}

/// A call grants one unit from a queue, and notifies the head to poll for more.
fn bounded_grants() -> Scenario {
    let heavy = vec![Level::waiting(0, 2).of(2)];
    let light = || vec![vec![Level::waiting(0, 2)]];
    Scenario {
        late: 0,
        crashes: false,
        max_advanced: Some(1),
        ..Scenario::new(
            "bounded grants",
            vec![vec![heavy], light(), light()],
            15_000,
        )
    }
}

/// A call removes one dead waiter, and who waits behind another one polls again at once.
fn bounded_removals() -> Scenario {
    let light = || vec![vec![Level::waiting(0, 1)]];
    Scenario {
        late: 0,
        loses: false,
        max_advanced: Some(1),
        ..Scenario::new(
            "bounded removals",
            vec![light(), light(), light(), light()],
            20_000,
        )
    }
}

/// Nobody refreshes or releases. A lease is acquired again when it has ended, so some lease lasts all
/// the time.
fn no_refresh() -> Scenario {
    let claims = || vec![vec![Level::trying(0, 4)], vec![Level::trying(0, 4).of(2)]];
    Scenario {
        loses: false,
        late: 0,
        crashes: false,
        has_no_refresh: true,
        ..Scenario::new("no refresh", vec![claims(), claims()], 40_000)
    }
}
