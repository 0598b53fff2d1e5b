//! The terminal's alternate screen, for a command that shows live data. The terminal is restored afterwards.

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

/// True while the terminal has to be restored.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Restores the terminal. After the first call, further calls do nothing.
pub(crate) fn restore() {
    if IS_OPEN.swap(false, SeqCst) {
        // Errors are ignored, because they cannot be reported.
        let _ = execute!(io::stdout(), EnableLineWrap, Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

/// Restores the terminal before a panic is printed, so that the message stays visible.
fn restore_before_a_panic_is_printed() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            print(info);
        }));
    });
}

/// The alternate screen. Dropping this restores the main screen.
pub(crate) struct Screen {
    events: UnboundedReceiver<Event>,
}

/// A request of the user.
enum Wish {
    Update,
    Quit,
    Interrupt,
}

impl Screen {
    pub(crate) fn open() -> Result<Self, Failure> {
        restore_before_a_panic_is_printed();
        terminal::enable_raw_mode()?;
        IS_OPEN.store(true, SeqCst);
        let (sender, events) = unbounded_channel();
        let screen = Self { events };
        execute!(io::stdout(), EnterAlternateScreen, Hide, DisableLineWrap)?;
        thread::spawn(move || read(&sender));
        Ok(screen)
    }

    /// The number of columns and lines. A terminal that does not know its size reports 0; then the usual size is
    /// returned.
    pub(crate) fn size() -> (u16, u16) {
        let size = terminal::size().ok();
        let size = size.filter(|(columns, lines)| *columns > 0 && *lines > 0);
        size.unwrap_or((80, 24))
    }

    /// Shows the lines of a text that fit on the screen.
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

    /// Waits for this time, or until the user requests an update. Returns false if the user quits.
    pub(crate) async fn wait_to_update(&mut self, every: Duration) -> Result<bool, Failure> {
        match self.wish(every).await {
            Wish::Update => Ok(true),
            Wish::Quit => Ok(false),
            Wish::Interrupt => Err(Failure::Interrupted),
        }
    }

    async fn wish(&mut self, every: Duration) -> Wish {
        // Not `Instant::now() + every`, because the sum may overflow.
        let mut end = pin!(sleep(every));
        loop {
            let event = tokio::select! {
                () = &mut end => return Wish::Update,
                event = self.events.recv() => event,
            };
            match event {
                Some(event) => {
                    if let Some(wish) = wish_of(&event) {
                        return wish;
                    }
                }
                // The keyboard cannot be read any more, so only a signal ends the command.
                None => {
                    end.await;
                    return Wish::Update;
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

/// Sends the terminal's events until the receiver is dropped.
fn read(events: &UnboundedSender<Event>) {
    while let Ok(event) = event::read() {
        if events.send(event).is_err() {
            return;
        }
    }
}

fn wish_of(event: &Event) -> Option<Wish> {
    let Event::Key(KeyEvent {
        code, modifiers, ..
    }) = event
    else {
        return matches!(event, Event::Resize(..)).then_some(Wish::Update);
    };
    match code {
        // In raw mode a terminal sends no signal for Ctrl-C.
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::Interrupt),
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Quit),
        KeyCode::Char(' ') => Some(Wish::Update),
        _ => None,
    }
}
