//! Fake servers, which grant permits up to a limit, first come, first served.

use super::driver::{Messages, News, ServerConnection, Transport};
use parking_lot::Mutex;
use proto::{
    core::{CallFailure, CoreSettings},
    verbs::{Acquired, Answer, Command, Group, LeaseName, Message, OperatorLimits, Queued, Wanted},
};
use std::{
    collections::{HashMap, VecDeque},
    future::pending,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::{Notify, oneshot};

/// A semaphore in which each permit has one unit.
#[derive(Default)]
struct Semaphore {
    /// The end of each permit's lease.
    held: HashMap<LeaseName, Instant>,
    queue: VecDeque<LeaseName>,
    token: u64,
}

pub(crate) struct Server {
    lease: Duration,
    delay: Duration,
    born: Instant,
    all: Mutex<HashMap<Arc<str>, Semaphore>>,
    messages: Mutex<Option<Messages>>,
    /// Notified when a call breaks its connection.
    broken: Notify,
    /// True while nothing is answered.
    pub(crate) is_silent: AtomicBool,
    /// True while no call of a runtime is sent, as if the runtimes stood still. The keeper's thread still sends.
    pub(crate) is_stuck: AtomicBool,
    /// True while each call fails at once, and breaks its connection.
    pub(crate) is_gone: AtomicBool,
    pub(crate) calls: AtomicUsize,
    pub(crate) connects: AtomicUsize,
    /// The number of connections, from the first one on, that do not answer.
    pub(crate) mute: AtomicUsize,
    /// The number of refreshes that did not find their permit.
    pub(crate) lost: AtomicUsize,
    pub(crate) refreshes: AtomicU64,
}

#[derive(Clone)]
pub(crate) struct Fake(pub(crate) Arc<Server>);

/// A delayed answer: the time at which it arrives, and the call that waits for it.
type Delayed = (Instant, oneshot::Sender<()>);

/// A connection of the keeper's thread or of a runtime.
pub(crate) struct Wire {
    server: Arc<Server>,
    /// The number of connections that were made before this one.
    number: usize,
    is_of_thread: bool,
    delayed: Option<mpsc::Sender<Delayed>>,
}

/// The numbers of deaths by a panic: of the keeper's thread, then of the core.
#[derive(Clone, Default)]
pub(crate) struct Deaths(pub(crate) Arc<[AtomicUsize; 2]>);

impl Deaths {
    /// Counts the deaths that the driver reports.
    pub(crate) fn observer(&self) -> impl Fn(News) + Send + Sync + use<> {
        let deaths = self.clone();
        move |news| {
            let died = match news {
                News::KeeperDied => 0,
                News::CoreDied => 1,
                _ => return,
            };
            deaths.0[died].fetch_add(1, SeqCst);
        }
    }
}

pub(crate) fn settings(lease: Duration) -> CoreSettings {
    CoreSettings {
        lease,
        timeout: Duration::from_millis(250),
        claims: true,
        ..CoreSettings::default()
    }
}

impl Fake {
    pub(crate) fn new(lease: Duration, delay: Duration) -> Self {
        Self(Arc::new(Server {
            lease,
            delay,
            born: Instant::now(),
            all: Mutex::default(),
            messages: Mutex::default(),
            broken: Notify::new(),
            is_silent: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
            connects: AtomicUsize::new(0),
            mute: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            refreshes: AtomicU64::new(0),
        }))
    }
}

impl Server {
    /// The numbers of held permits and of waiters of a semaphore.
    pub(crate) fn holds(&self, name: &str) -> (usize, usize) {
        let all = self.all.lock();
        let semaphore = all.get(name);
        semaphore.map_or((0, 0), |found| (found.held.len(), found.queue.len()))
    }

    /// Forgets everything.
    pub(crate) fn flush(&self) {
        self.all.lock().clear();
    }

    /// The server's clock, in milliseconds.
    fn ms(&self) -> u64 {
        1_000_000 + self.born.elapsed().as_millis() as u64
    }

    fn run(&self, commands: &[Command]) -> Vec<Answer> {
        self.calls.fetch_add(1, SeqCst);
        let mut sent = Vec::new();
        let answers = commands
            .iter()
            .map(|command| self.command(command, &mut sent));
        let answers = answers.collect();
        let messages = self.messages.lock().clone().filter(|_| !sent.is_empty());
        if let Some(messages) = messages {
            sent.into_iter().for_each(|message| messages(message));
        }
        answers
    }

    fn command(&self, command: &Command, sent: &mut Vec<Message>) -> Answer {
        let mut all = self.all.lock();
        match command {
            Command::Acquire { claims, .. } => {
                let claims = claims.iter();
                let each = claims
                    .map(|claim| self.acquire(&mut all, &claim[0]))
                    .collect();
                Answer::Acquired(self.ms(), each)
            }
            Command::Refresh { groups, .. } => {
                let mut found = Vec::new();
                for Group { name, permits } in groups {
                    let semaphore = all.entry(Arc::clone(name)).or_default();
                    let permits = permits.iter();
                    found.extend(permits.map(|units| self.refresh(semaphore, units.id.name)));
                }
                Answer::Held(found)
            }
            Command::Release {
                groups,
                with_answer,
                ..
            } => {
                let mut found = Vec::new();
                for Group { name, permits } in groups {
                    let semaphore = all.entry(Arc::clone(name)).or_default();
                    found.extend(
                        permits
                            .iter()
                            .map(|units| self.release(semaphore, units.id.name, sent)),
                    );
                }
                if *with_answer {
                    Answer::Held(found)
                } else {
                    Answer::Done
                }
            }
            Command::Presence(_) => {
                let limits = Some(OperatorLimits::default());
                Answer::Presence(self.ms(), Some(self.ms() * 1_000), Some(1), limits)
            }
            Command::Leave => Answer::Done,
            other => unreachable!("a store of one server sends no {other:?}"),
        }
    }

    fn acquire(&self, all: &mut HashMap<Arc<str>, Semaphore>, wanted: &Wanted) -> Acquired {
        if !all.contains_key(&wanted.name) {
            all.insert(Arc::clone(&wanted.name), Semaphore::default());
        }
        let semaphore = all.get_mut(&wanted.name).expect("it is there");
        let name = wanted.units.id.name;
        let first = semaphore.queue.front().is_none_or(|first| *first == name);
        let has_room = semaphore.held.len() < wanted.units.id.limit as usize && first;
        if has_room || semaphore.held.contains_key(&name) {
            semaphore.queue.retain(|other| *other != name);
            semaphore.held.insert(name, Instant::now() + self.lease);
            semaphore.token += 1;
            return Acquired::Granted(vec![(semaphore.token, semaphore.held.len() as u32)]);
        }
        let held = semaphore.held.len() as u32;
        match wanted.position {
            None => Acquired::Full {
                level: 0,
                held,
                retry_after: None,
            },
            Some(_) => {
                if !semaphore.queue.contains(&name) {
                    semaphore.queue.push_back(name);
                }
                Acquired::Queued(Queued {
                    level: 0,
                    arrival: 1,
                    recheck: None,
                    last_token: semaphore.token,
                    pause: None,
                    earliest: None,
                })
            }
        }
    }

    fn refresh(&self, semaphore: &mut Semaphore, name: LeaseName) -> bool {
        self.refreshes.fetch_add(1, SeqCst);
        let now = Instant::now();
        let end = semaphore.held.get_mut(&name).filter(|end| **end > now);
        let is_held = end.is_some();
        match end {
            Some(end) => *end = now + self.lease,
            None => drop(self.lost.fetch_add(1, SeqCst)),
        }
        is_held
    }

    /// Releases a permit, and grants its unit to the head of the queue.
    fn release(&self, semaphore: &mut Semaphore, name: LeaseName, sent: &mut Vec<Message>) -> bool {
        semaphore.queue.retain(|other| *other != name);
        let was_held = semaphore.held.remove(&name).is_some();
        if was_held && let Some(next) = semaphore.queue.pop_front() {
            semaphore.token += 1;
            semaphore.held.insert(next, Instant::now() + self.lease);
            sent.push(Message::Granted(
                next,
                semaphore.token,
                semaphore.held.len() as u32,
            ));
        }
        was_held
    }
}

impl Transport for Fake {
    type Connection = Wire;

    async fn connect(&self, _: usize, messages: Option<Messages>) -> Option<Wire> {
        let number = self.0.connects.fetch_add(1, SeqCst);
        // Only the connection of the thread receives messages.
        let is_of_thread = messages.is_some();
        if is_of_thread {
            *self.0.messages.lock() = messages;
        }
        let delayed = (!self.0.delay.is_zero()).then(delayed);
        let server = Arc::clone(&self.0);
        Some(Wire {
            server,
            number,
            is_of_thread,
            delayed,
        })
    }
}

impl ServerConnection for Wire {
    async fn call(
        &self,
        mut commands: Vec<Command>,
        _: Duration,
    ) -> Result<Vec<Answer>, CallFailure> {
        if self.number < self.server.mute.load(SeqCst) {
            return pending().await;
        }
        if self.server.is_gone.load(SeqCst) {
            self.server.calls.fetch_add(1, SeqCst);
            self.server.broken.notify_one();
            return Err(CallFailure::Broken);
        }
        if !self.is_of_thread && self.server.is_stuck.load(SeqCst) {
            pending::<()>().await;
        }
        let answers = self.server.run(&mem::take(&mut commands));
        if self.server.is_silent.load(SeqCst) {
            pending::<()>().await;
        }
        if let Some(delayed) = &self.delayed {
            let (then, arrives) = oneshot::channel();
            let at = Instant::now() + self.server.delay;
            let _ = delayed.send((at, then));
            arrives.await.map_err(|_| CallFailure::Broken)?;
        }
        Ok(answers)
    }

    async fn closed(&self) {
        self.server.broken.notified().await;
    }
}

/// Starts a thread that notifies each receiver at its time, because Tokio's timers are too coarse.
fn delayed() -> mpsc::Sender<Delayed> {
    let (send, receive) = mpsc::channel::<Delayed>();
    thread::spawn(move || {
        for (at, then) in receive {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            let _ = then.send(());
        }
    });
    send
}
