//! What systemd is told, if it has asked by `NOTIFY_SOCKET`; nothing happens without.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::watch;

use super::Health;
use super::stop::ABORT_GRACE;
use crate::lease::Board;
use crate::supervision::{Phase, Tree};

/// Between two looks when there is no watchdog: what the status line says is at most so old.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Longest status line, in bytes: it is one line of `systemctl status`.
const STATUS_BYTES_MAX: usize = 500;

/// A runtime that tells systemd of itself.
pub(super) struct Systemd {
    pub(super) tree: Tree,
    pub(super) boards: Vec<Board>,
    /// Turns true when somebody waits for the runtime's end: everything is started.
    pub(super) awaited: watch::Receiver<bool>,
    pub(super) grace: Duration,
}

impl Systemd {
    /// Tells, on the supervisors' arbiter, until that ends: through a drain, which may take longer
    /// than the watchdog waits.
    pub(super) fn start(self) {
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            return;
        }
        let own = self.tree.arbiters.own();
        // `false`: it has ended already.
        let _ = own.spawn(self.tell());
    }

    async fn tell(self) {
        // Half the time after which systemd takes the service for dead, as it recommends.
        let watchdog = sd_notify::watchdog_enabled().map(|patience| patience / 2);
        let interval = watchdog.map_or(LOOK_INTERVAL, |half| half.min(LOOK_INTERVAL));
        let (mut phase, mut awaited) = (self.tree.phase.subscribe(), self.awaited.clone());
        let (mut said_ready, mut said_stopping, mut said) = (false, false, String::new());
        loop {
            let health = Health::of(&self.tree, &self.boards);
            let (ready, stopping) = (
                *awaited.borrow_and_update(),
                *phase.borrow_and_update() > Phase::Run,
            );
            let mut states = Vec::new();
            if ready && !std::mem::replace(&mut said_ready, true) {
                states.push(NotifyState::Ready);
            }
            if stopping && !std::mem::replace(&mut said_stopping, true) {
                states.push(NotifyState::Stopping);
                states.push(NotifyState::ExtendTimeoutUsec(self.stop_timeout_usec()));
            }
            // A process that cannot heal itself says nothing, and systemd restarts it.
            if watchdog.is_some() && health.live {
                states.push(NotifyState::Watchdog);
            }
            let status = status(&health);
            if status != said {
                states.push(NotifyState::Status(&status));
            }
            if let Err(error) = sd_notify::notify(&states) {
                tracing::warn!(%error, "systemd was not told");
            }
            said = status;
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                Ok(()) = phase.changed() => {}
                Ok(()) = awaited.changed() => {}
            }
        }
    }

    /// How long a drain and an abort take at most.
    fn stop_timeout_usec(&self) -> u32 {
        let longest = self.grace + ABORT_GRACE * 3;
        u32::try_from(longest.as_micros()).unwrap_or(u32::MAX)
    }
}

/// One line.
fn status(health: &Health) -> String {
    let mut line: String = health.to_string().chars().map(one_line).collect();
    let mut end = line.len().min(STATUS_BYTES_MAX);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.truncate(end);
    line
}

/// A line break would end the status, and begin another assignment.
fn one_line(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_short_line_whatever_an_error_says() {
        let health = Health {
            live: true,
            ready: false,
            reasons: vec!["it\nREADY=1".to_owned(), "é".repeat(STATUS_BYTES_MAX)],
        };
        let line = status(&health);
        assert!(line.starts_with("live, not ready; it READY=1; é"), "{line}");
        assert!(line.len() <= STATUS_BYTES_MAX);
    }
}
