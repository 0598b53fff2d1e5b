//! The terminal while a command shows something live: on its other screen, and as it was when that is over.

use crate::failure::Failure;
use crossterm::{
    cursor::{Hide, MoveTo, Show},
    event::{self, Event, KeyCode, KeyEvent, KeyModifiers},
    execute, queue,
    style::Print,
    terminal::{
        self, Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen,
        LeaveAlternateScreen,
    },
};
use std::{
    io::{self, Write},
    panic,
    pin::pin,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::sleep,
};

/// Whether the terminal is to be put back.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Puts the terminal back as it was, once, whoever calls this first.
pub(crate) fn restore() {
    if IS_OPEN.swap(false, SeqCst) {
        // There is nobody to tell.
        let _ = execute!(io::stdout(), EnableLineWrap, Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

/// A panic is told on the screen that stays.
fn restore_before_a_panic_is_told() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            tell(info);
        }));
    });
}

/// The other screen. What is on it is gone when this is dropped.
pub(crate) struct Screen {
    events: UnboundedReceiver<Event>,
}

/// What a person wants.
enum Wish {
    /// Another look, now.
    Look,
    Quit,
    Interrupt,
}

impl Screen {
    pub(crate) fn open() -> Result<Self, Failure> {
        restore_before_a_panic_is_told();
        terminal::enable_raw_mode()?;
        IS_OPEN.store(true, SeqCst);
        let (sender, events) = unbounded_channel();
        let screen = Self { events };
        execute!(io::stdout(), EnterAlternateScreen, Hide, DisableLineWrap)?;
        thread::spawn(move || read(&sender));
        Ok(screen)
    }

    /// How many columns and lines there are. A terminal that nobody has told its size says 0.
    pub(crate) fn size() -> (u16, u16) {
        let size = terminal::size().ok();
        let size = size.filter(|(columns, lines)| *columns > 0 && *lines > 0);
        size.unwrap_or((80, 24))
    }

    /// Shows as many lines as there is room for.
    pub(crate) fn show(&self, text: &str) -> Result<(), Failure> {
        let (_, height) = Self::size();
        let mut out = io::stdout().lock();
        for (at, line) in (0..height).zip(text.lines()) {
            queue!(
                out,
                MoveTo(0, at),
                Clear(ClearType::CurrentLine),
                Print(line)
            )?;
        }
        let used = text.lines().count().min(height.into()) as u16;
        if used < height {
            queue!(out, MoveTo(0, used), Clear(ClearType::FromCursorDown))?;
        }
        Ok(out.flush()?)
    }

    /// Waits for so long, or until a person wants another look. `false`: no more.
    pub(crate) async fn goes_on(&mut self, every: Duration) -> Result<bool, Failure> {
        match self.wish(every).await {
            Wish::Look => Ok(true),
            Wish::Quit => Ok(false),
            Wish::Interrupt => Err(Failure::Interrupted),
        }
    }

    async fn wish(&mut self, every: Duration) -> Wish {
        // Not `Instant::now() + every`: there may be no such instant.
        let mut end = pin!(sleep(every));
        loop {
            let event = tokio::select! {
                () = &mut end => return Wish::Look,
                event = self.events.recv() => event,
            };
            match event {
                Some(event) => {
                    if let Some(wish) = meant(&event) {
                        return wish;
                    }
                }
                // Nothing can be typed: only signals end it.
                None => {
                    end.await;
                    return Wish::Look;
                }
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Sends what is typed, until nobody wants it.
fn read(events: &UnboundedSender<Event>) {
    while let Ok(event) = event::read() {
        if events.send(event).is_err() {
            return;
        }
    }
}

fn meant(event: &Event) -> Option<Wish> {
    let Event::Key(KeyEvent {
        code, modifiers, ..
    }) = event
    else {
        return matches!(event, Event::Resize(..)).then_some(Wish::Look);
    };
    match code {
        // A terminal in raw mode makes no signal of it.
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::Interrupt),
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Quit),
        KeyCode::Char(' ') => Some(Wish::Look),
        _ => None,
    }
}
