use std::time::Duration;

use tokio::time::Instant;

/// The shortest time between two looks for messages that are due: a nudge says that something was
/// enqueued, not that something was scheduled.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// When a dispatcher looks for scheduled messages that are due: when the next one is, as the
/// database's clock told at the last look, and once per poll interval at least. The process's own
/// clock only waits.
pub(super) struct Schedule {
    looked_at: Option<Instant>,
    look_at: Instant,
    poll_interval_max: Duration,
}

impl Schedule {
    /// The first look is at once.
    pub(super) fn new(poll_interval_max: Duration) -> Self {
        Self {
            looked_at: None,
            look_at: Instant::now(),
            poll_interval_max,
        }
    }

    /// Whether to look now.
    pub(super) fn is_time(&self) -> bool {
        Instant::now() >= self.look_at
    }

    /// How long until the next look.
    pub(super) fn wait(&self) -> Duration {
        self.look_at.saturating_duration_since(Instant::now())
    }

    /// Something may have been scheduled, or there are other lanes: look soon.
    pub(super) fn called(&mut self) {
        let soon = self.looked_at.map(|at| at + LOOK_INTERVAL_MIN);
        self.look_at = soon.map_or(self.look_at, |soon| soon.min(self.look_at));
    }

    /// Nothing is due for so long, or nothing is scheduled.
    pub(super) fn looked(&mut self, next: Option<Duration>) {
        let now = Instant::now();
        let wait = next.map_or(self.poll_interval_max, |next| {
            next.clamp(Duration::ZERO, self.poll_interval_max)
        });
        self.looked_at = Some(now);
        self.look_at = now + wait;
    }

    /// So many messages were due and moved. If none could be, somebody has them in hand: whoever
    /// cancels one, or the new owner of their lane.
    pub(super) fn moved(&mut self, messages: usize) {
        match messages {
            0 => self.looked(Some(LOOK_INTERVAL_MIN)),
            _ => self.looked(Some(Duration::ZERO)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_looks_when_something_is_due_and_once_per_interval_at_least() {
        let second = Duration::from_secs(1);
        let mut schedule = Schedule::new(second);
        assert!(schedule.is_time());
        schedule.looked(None);
        assert_eq!(schedule.wait(), second);
        schedule.looked(Some(second * 100));
        assert_eq!(schedule.wait(), second);
        schedule.looked(Some(second / 4));
        assert_eq!(schedule.wait(), second / 4);
        assert!(!schedule.is_time());
        tokio::time::advance(second / 4).await;
        assert!(schedule.is_time());
        schedule.moved(7);
        assert!(schedule.is_time());
        schedule.moved(0);
        assert_eq!(schedule.wait(), LOOK_INTERVAL_MIN);
    }

    #[tokio::test(start_paused = true)]
    async fn however_often_it_is_called_it_looks_soon_and_rarely() {
        let mut schedule = Schedule::new(Duration::from_secs(1));
        schedule.looked(None);
        schedule.called();
        assert_eq!(schedule.wait(), LOOK_INTERVAL_MIN);
        tokio::time::advance(LOOK_INTERVAL_MIN / 2).await;
        schedule.called();
        assert_eq!(schedule.wait(), LOOK_INTERVAL_MIN / 2);
        tokio::time::advance(LOOK_INTERVAL_MIN / 2).await;
        assert!(schedule.is_time());
        // A nudge puts nothing off.
        schedule.looked(Some(Duration::from_millis(5)));
        schedule.called();
        assert_eq!(schedule.wait(), Duration::from_millis(5));
    }
}
