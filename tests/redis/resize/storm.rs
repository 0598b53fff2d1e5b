//! Changes of many weights, losses and faults, in random orders.

use super::{HELD, claim};
use std::{env, time::Duration};
use testing::{
    proxy::{End, Proxy},
    redis::RedisServer,
    resp::Raw,
    rng::Rng,
    wait::eventually,
};
use tokio::{task::JoinSet, time::sleep};
use tower_semaphore::{Permit, RedisSemaphore, Semaphore};

const BOUND: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_millis(1_500);
const ROUNDS: usize = 15;

async fn disaster(raw: &mut Raw, proxy: &Proxy, rng: &mut Rng) {
    match rng.below(5) {
        0 => drop(raw.cmd(&["DEL", HELD]).await),
        1 | 2 => {
            for (unit, _) in raw.zmembers(HELD).await {
                if rng.once_in(4) {
                    raw.cmd(&[b"ZREM", HELD.as_bytes(), &unit]).await;
                }
            }
        }
        3 => proxy.kill(End::Reset),
        _ => {
            proxy.black_hole();
            sleep(rng.millis(100..2_000)).await;
            proxy.forward();
        }
    }
}

/// Some are changed by several clones at once.
async fn change_some(permits: &[Permit], rng: &mut Rng, proxy: &Proxy) {
    let mut changes = JoinSet::new();
    for permit in permits {
        for _ in 0..rng.below(3) {
            let (permit, mut rng) = (permit.clone(), rng.another());
            changes.spawn(async move {
                sleep(rng.millis(0..20)).await;
                // A failure leaves it as it was.
                let _ = permit.resize(1 + rng.below(8) as u32).await;
            });
        }
    }
    if rng.once_in(3) {
        sleep(Duration::from_millis(5)).await;
        proxy.drop_replies(2);
    }
    changes.join_all().await;
}

async fn until_all_are_held(permits: &[Permit], raw: &mut Raw, after: &str) {
    let weights = permits.iter().map(|permit| permit.weight() as usize);
    let all: usize = weights.sum();
    let settled = async || raw.zcard(HELD).await == all && !permits.iter().any(Permit::is_lost);
    eventually(&format!("{all} units are held {after}"), BOUND, settled).await;
}

/// All have room, so after a while each holds what it says.
#[tokio::test]
async fn permits_hold_what_they_say_after_losses_and_faults() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(LEASE / 6);
    let store = builder.connect(proxy.url()).await.expect("it connects");
    let mut raw = Raw::connect(server.port()).await;
    let seed = env::var("SEED").map_or(77, |seed| seed.parse().expect("a number"));
    let (mut rng, mut permits) = (Rng::new(seed), Vec::new());
    for weight in 1..=8 {
        let permit = store.acquire(claim(200).with_weight(weight)).await;
        permits.push(permit.expect("there is room"));
    }
    for round in 0..ROUNDS {
        change_some(&permits, &mut rng, &proxy).await;
        until_all_are_held(&permits, &mut raw, &format!("after changes, round {round}")).await;
        disaster(&mut raw, &proxy, &mut rng).await;
        until_all_are_held(
            &permits,
            &mut raw,
            &format!("after a disaster, round {round}"),
        )
        .await;
    }
    drop(permits);
    let none = async || raw.zcard(HELD).await == 0;
    eventually("nothing is held", BOUND, none).await;
}
