//! Tests in a real terminal of 80 columns and 24 lines: tmux.

use crate::{fleet::Fleet, golden::assert_golden, program::PATIENT};
use std::{
    process::{Command, id},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};
use testing::redis::RedisServer;
use tokio::time::sleep;

const BOUND: Duration = Duration::from_secs(60);
/// The time between two looks at the screen.
const POLL: Duration = Duration::from_millis(20);

/// A terminal, which ends when it is dropped.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// Runs the program between two lines of text: `before`, and `status N`.
    fn run(server: &RedisServer, args: &str) -> Self {
        Self::with(server, args, &[])
    }

    fn with(server: &RedisServer, args: &str, variables: &[(&str, &str)]) -> Self {
        Self::after("true", server, args, variables)
    }

    /// Runs the shell command `setup` first.
    fn after(setup: &str, server: &RedisServer, args: &str, variables: &[(&str, &str)]) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let socket = format!("semaphore-{}-{}", id(), COUNT.fetch_add(1, Relaxed));
        let (program, url) = (env!("CARGO_BIN_EXE_semaphore"), server.url());
        let line = format!(
            "{setup}; echo before; '{program}' {} --url {url} {args}; echo status $?; cat",
            PATIENT.join(" ")
        );
        let terminal = Self { socket };
        let mut command = terminal.command(&["-f", "/dev/null", "new-session", "-d"]);
        command.args(["-x", "80", "-y", "24", &line]);
        for name in ["NO_COLOR", "REDIS_URL", "REDIS_PASSWORD"] {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied());
        let started = command.status();
        let missing = "these tests need `tmux`: `apt-get install tmux`, or `brew install tmux`";
        assert!(started.expect(missing).success());
        terminal
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.socket]).args(args);
        command
    }

    fn ask(&self, args: &[&str]) -> String {
        let output = self.command(args).output().expect("tmux runs");
        String::from_utf8(output.stdout).expect("text")
    }

    fn screen(&self) -> String {
        self.ask(&["capture-pane", "-p"])
    }

    fn keys(&self, keys: &str) {
        self.ask(&["send-keys", keys]);
    }

    /// Waits until the screen has this text, and returns the screen. A failure shows the last screen.
    async fn shows(&self, text: &str) -> String {
        let end = Instant::now() + BOUND;
        loop {
            let is_last = Instant::now() >= end;
            let screen = self.screen();
            if screen.contains(text) {
                return screen;
            }
            assert!(!is_last, "not within {BOUND:?}: {text:?} in\n{screen}");
            sleep(POLL).await;
        }
    }

    /// The process id of the program.
    fn program(&self) -> String {
        let shell = self.ask(&["display-message", "-p", "#{pane_pid}"]);
        let children = Command::new("pgrep").args(["-P", shell.trim()]).output();
        let children = children.expect("pgrep runs").stdout;
        String::from_utf8(children).expect("text").trim().to_owned()
    }

    /// Asserts that the terminal is restored and that the program ended with this status.
    async fn assert_restored(&self, status: &str) {
        let screen = self.shows(&format!("status {status}")).await;
        assert!(screen.starts_with("before\n"), "{screen}");
        let state = self.ask(&[
            "display-message",
            "-p",
            "#{alternate_on} #{cursor_flag} #{wrap_flag}",
        ]);
        // The main screen, a visible cursor, and lines that wrap.
        assert_eq!(state.trim(), "0 1 1");
        // The terminal echoes typed text, and Enter ends the line, so `cat` repeats it.
        self.ask(&["send-keys", "typed", "Enter"]);
        let screen = self.shows("typed\ntyped").await;
        assert!(screen.starts_with("before\n"), "{screen}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.ask(&["kill-server"]);
    }
}

#[tokio::test]
async fn a_table_fits_into_80_columns_and_keeps_its_ids_in_one_piece() {
    let fleet = Fleet::start().await;
    let terminal = Terminal::run(&fleet.server, "usage concurrency ann");
    let screen = terminal.shows("status 0").await;
    let shown = screen.trim_start_matches("before\n");
    let (shown, _) = shown.split_once("status").expect("a status");
    assert_golden("usage-80", shown);
    assert!(
        shown.lines().all(|line| line.chars().count() <= 80),
        "{shown}"
    );
    for id in ["00000000000000a1.1f ", "00000000000000b2.4 "] {
        assert!(shown.contains(id), "{id}: {shown}");
    }
}

#[tokio::test]
async fn headings_are_bold_unless_no_color_is_set() {
    let fleet = Fleet::start().await;
    for (variables, is_bold) in [(&[][..], true), (&[("NO_COLOR", "1")], false)] {
        let terminal = Terminal::with(&fleet.server, "usage concurrency ann", variables);
        terminal.shows("status 0").await;
        let styled = terminal.ask(&["capture-pane", "-p", "-e"]);
        assert_eq!(styled.contains("\x1b["), is_bold, "{styled:?}");
    }
}

/// A dumb terminal has no alternate screen.
#[tokio::test]
async fn a_dumb_terminal_gets_the_plain_text_that_a_file_gets() {
    let fleet = Fleet::start().await;
    let terminal = Terminal::after("export TERM=dumb", &fleet.server, "top", &[]);
    terminal.shows("status 0").await;
    let styled = terminal.ask(&["capture-pane", "-p", "-e"]);
    assert!(
        styled.contains("FULLEST") && !styled.contains("\x1b["),
        "{styled:?}"
    );
}

#[tokio::test]
async fn top_is_live_on_one_screen_and_leaves_the_terminal_as_it_was() {
    let mut fleet = Fleet::start().await;
    fleet.keys(100).await;
    let terminal = Terminal::run(&fleet.server, "top --every 0.1");
    let screen = terminal.shows("keys 102, held 104").await;
    assert!(
        screen.contains("FULLEST") && screen.contains("LONGEST QUEUES"),
        "{screen}"
    );
    assert!(!screen.contains("before"), "{screen}");
    fleet.keys(200).await;
    terminal.shows("keys 202, held 204").await;
    terminal.keys("q");
    terminal.assert_restored("0").await;
}

#[tokio::test]
async fn watch_follows_a_key_until_ctrl_c() {
    let mut fleet = Fleet::start().await;
    let terminal = Terminal::run(&fleet.server, "watch concurrency ann --every 0.1");
    terminal.shows("held 3").await;
    fleet
        .raw
        .cmd(&["DEL", "semaphore:2:{concurrency:ann}:held"])
        .await;
    terminal.shows("held 0").await;
    terminal.keys("C-c");
    terminal.assert_restored("130").await;
}

#[tokio::test]
async fn the_longest_interval_that_can_be_typed_is_accepted() {
    let fleet = Fleet::start().await;
    let terminal = Terminal::run(&fleet.server, "watch concurrency ann --every 1e19");
    terminal.shows("held 3").await;
    terminal.keys("q");
    terminal.assert_restored("0").await;
}

/// Containers, and programs such as `expect`, make terminals without a size.
#[tokio::test]
async fn a_terminal_that_does_not_know_its_size_is_taken_for_one_of_80_columns() {
    let fleet = Fleet::start().await;
    let unknown = |args| Terminal::after("stty rows 0 cols 0", &fleet.server, args, &[]);
    let screen = unknown("usage concurrency ann").shows("status 0").await;
    let shown = screen.trim_start_matches("before\n");
    let (shown, _) = shown.split_once("status").expect("a status");
    assert_golden("usage-80", shown);
    let terminal = unknown("watch concurrency ann");
    terminal.shows("held 3").await;
    terminal.keys("q");
    terminal.assert_restored("0").await;
}

#[tokio::test]
async fn a_signal_leaves_the_terminal_as_it_was() {
    let fleet = Fleet::start().await;
    for (signal, status) in [("-INT", "130"), ("-TERM", "143")] {
        let terminal = Terminal::run(&fleet.server, "watch concurrency ann");
        terminal.shows("held 3").await;
        let sent = Command::new("kill")
            .args([signal, &terminal.program()])
            .status();
        assert!(sent.expect("kill runs").success());
        terminal.assert_restored(status).await;
    }
}

#[tokio::test]
async fn a_server_that_dies_leaves_the_terminal_as_it_was() {
    let mut fleet = Fleet::start().await;
    let terminal = Terminal::run(&fleet.server, "top --every 0.1");
    terminal.shows("FULLEST").await;
    fleet.server.kill();
    terminal.assert_restored("3").await;
}

#[tokio::test]
async fn a_person_is_asked_before_all_permits_end() {
    let fleet = Fleet::start().await;
    let question = "End all permits of concurrency ann: 2? [y/N]";
    for (answer, status) in [("n", "1"), ("y", "0")] {
        let terminal = Terminal::run(&fleet.server, "revoke concurrency ann --all");
        terminal.shows(question).await;
        terminal.ask(&["send-keys", answer, "Enter"]);
        terminal.shows(&format!("status {status}")).await;
    }
    let terminal = Terminal::run(&fleet.server, "revoke concurrency bob --all");
    terminal
        .shows("End all permits of concurrency bob: 1?")
        .await;
    terminal.keys("C-c");
    terminal.shows("status 130").await;
}

#[tokio::test]
async fn progress_is_shown_while_the_output_goes_elsewhere_and_is_cleared_at_the_end() {
    let mut fleet = Fleet::start().await;
    // Many, so that the listing lasts until a look at the screen.
    fleet.keys(50_000).await;
    let terminal = Terminal::run(&fleet.server, "keys concurrency >/dev/null");
    terminal.shows(" keys, ").await;
    let screen = terminal.shows("status 0").await;
    assert!(!screen.contains(" keys, "), "{screen}");
}
