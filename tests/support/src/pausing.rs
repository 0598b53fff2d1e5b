//! A store that grants everything and records pauses.

use std::{
    future::ready,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::sync::watch;
use tower_semaphore::{
    Acquire, Claim, Claims, Permit, Semaphore,
    semaphore::{
        BoxFuture, ClaimError, Grant, LevelState, Loss, Resize, Resizing, SemaphoreId, StoreError,
    },
};

/// A pause that the store has received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedPause {
    pub policy: String,
    pub key: String,
    pub time: Duration,
    pub note: String,
    /// The number of permits held at that time.
    pub held: usize,
}

/// A store that grants everything and records pauses.
#[derive(Clone)]
pub struct PauseRecorder(Arc<Server>);

struct Server {
    state: Mutex<State>,
    answers: watch::Sender<Answers>,
}

#[derive(Default)]
struct State {
    held: usize,
    pauses: Vec<RecordedPause>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    NotYet,
    Paused,
    Failed,
}

impl PauseRecorder {
    /// A store that answers pauses at once.
    pub fn prompt() -> Self {
        Self::new(Answers::Paused)
    }

    /// A store that answers pauses once a test calls [`answer`](Self::answer).
    pub fn slow() -> Self {
        Self::new(Answers::NotYet)
    }

    /// A store whose pauses fail.
    pub fn failing() -> Self {
        Self::new(Answers::Failed)
    }

    fn new(answers: Answers) -> Self {
        Self(Arc::new(Server {
            state: Mutex::default(),
            answers: watch::Sender::new(answers),
        }))
    }

    /// Answers all pauses, past and future.
    pub fn answer(&self) {
        self.0.answers.send_replace(Answers::Paused);
    }

    pub fn pauses(&self) -> Vec<RecordedPause> {
        self.0.state().pauses.clone()
    }

    /// The number of permits held now.
    pub fn held(&self) -> usize {
        self.0.state().held
    }
}

impl Server {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    fn record(&self, claim: &Claim, time: Duration, note: String) {
        let mut state = self.state();
        let held = state.held;
        state.pauses.push(RecordedPause {
            policy: claim.policy().as_str().to_owned(),
            key: String::from_utf8_lossy(claim.key().as_bytes()).into_owned(),
            time,
            note,
            held,
        });
    }
}

impl Semaphore for PauseRecorder {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        let claims: Vec<Claim> = claims.as_slice().to_vec();
        self.0.state().held += 1;
        let grant = Held {
            server: Arc::clone(&self.0),
            claims: claims.clone(),
            loss: Loss::default(),
        };
        let permit = Permit::new(grant, claims.iter().map(|claim| (claim, 1)));
        Acquire::ready(Ok(permit))
    }
}

struct Held {
    server: Arc<Server>,
    claims: Vec<Claim>,
    loss: Loss,
}

impl Grant for Held {
    fn level(&self, _: usize) -> LevelState {
        LevelState::new(1)
    }

    fn semaphore(&self, _: usize) -> Option<SemaphoreId> {
        None
    }

    fn loss(&self) -> &Loss {
        &self.loss
    }

    fn resize(&self, _: Vec<Resize>) -> Resizing<'_> {
        Box::pin(ready(Err(ClaimError::FixedWeight.into())))
    }

    fn release(&self) -> BoxFuture<bool> {
        Box::pin(ready(true))
    }

    /// Sends nothing before its first poll.
    fn pause(&self, level: usize, time: Duration, note: &str) -> BoxFuture<Result<(), StoreError>> {
        let (server, note) = (Arc::clone(&self.server), note.to_owned());
        let claim = self.claims[level].clone();
        Box::pin(async move {
            server.record(&claim, time, note);
            let mut answers = server.answers.subscribe();
            let answer = answers.wait_for(|answers| *answers != Answers::NotYet);
            match answer.await.as_deref() {
                Ok(Answers::Paused) => Ok(()),
                _ => Err(StoreError::new("connection refused")),
            }
        })
    }

    fn settle(&self, _level: usize, _used: u32) {}

    fn awaits_release(&self) -> bool {
        false
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.server.state().held -= 1;
    }
}
