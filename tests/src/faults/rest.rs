//! The end of a round: everything is healed, and comes to rest.

use std::time::{Duration, Instant};

use super::checker::{judge_quiet, restless};
use super::driver::Driver;
use super::message::{AUDIT, BILLING, LEDGER};
use super::seat::Seat;
use super::service::partitions;

/// When all looks quiet, what is missing may still be under way for so long: a broker counts once a
/// second.
const STRAGGLERS: Duration = Duration::from_secs(6);

impl Driver<'_> {
    /// Nothing disturbs any more, and nobody is to die.
    pub(super) fn heal(&mut self) -> Result<(), String> {
        self.heal_all_but_processes()?;
        for number in 0..self.seats.len() {
            if self.seats[number].aim().is_some() {
                self.kill(number)?;
            }
            if let Some(end) = self.seats[number].ended() {
                self.note(number, end)?;
            }
            if !self.seats[number].is_running() {
                self.start(number, None);
            }
        }
        Ok(())
    }

    /// Waits until everything that can run has run, and judges.
    pub(super) fn settle(&mut self, healed: bool) -> Result<(), String> {
        let began = Instant::now();
        let mut quiet_since = None;
        loop {
            self.nobody_ended()?;
            let found = self.ground.tables.snapshot()?;
            let queues = self.ground.queues();
            let contract = self.plan.contract();
            let mut moving = match &queues {
                Ok(queues) => restless(&found, queues),
                Err(error) => vec![error.clone()],
            };
            moving.extend(self.other_layouts()?);
            let queues = queues.unwrap_or_default();
            let verdict = judge_quiet(&contract, &found, &queues, healed);
            let quiet = moving.is_empty();
            quiet_since = quiet.then(|| quiet_since.unwrap_or_else(Instant::now));
            let for_sure = quiet_since.is_some_and(|since| since.elapsed() > STRAGGLERS);
            if quiet && (verdict.lost == 0 || for_sure) {
                self.tell(&format!("quiet after {:?}", began.elapsed()));
                self.outcome.looks += 1;
                self.outcome.verdict.add(verdict);
                return Ok(());
            }
            let patience = self.plan.patience;
            if began.elapsed() > patience {
                self.outcome.verdict.add(verdict);
                let moving: Vec<String> = moving.into_iter().take(20).collect();
                return Err(format!("G2, G6 not quiet after {patience:?}: {moving:#?}"));
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// Layouts that are not yet what all processes wish.
    fn other_layouts(&self) -> Result<Vec<String>, String> {
        let division = self.seats.first().map_or(0, |seat| seat.orders.division);
        let all = "SELECT consumer || ' ' || step || ' ' || CAST(partitions AS text) AS value \
                   FROM {posta}layout";
        let mut layouts = self.ground.tables.lines(all)?;
        for consumer in [LEDGER, BILLING, AUDIT] {
            let wished = format!("{consumer} rest {}", partitions(consumer, division));
            layouts.retain(|layout| *layout != wished);
        }
        Ok(layouts)
    }

    /// Everything that is dead is mended and replayed, until nothing is.
    pub(super) fn replay_all(&mut self) -> Result<(), String> {
        let tables = self.ground.tables.clone();
        // What waits may die in its turn.
        let open = "SELECT (SELECT COUNT(*) FROM {posta}dead_letter \
                        WHERE state IN ('dead', 'replaying')) \
                    + (SELECT COUNT(*) FROM {posta}replay_run WHERE ended_at IS NULL) \
                    + (SELECT COUNT(*) FROM {posta}retry)";
        let mut next = Instant::now();
        self.until("nothing is dead", |driver| {
            if Instant::now() >= next {
                driver.ground.replay(None);
                next = Instant::now() + Duration::from_secs(1);
            }
            tables.number(open) == Ok(0)
        })
    }

    /// Drains all processes: each ends by itself, and well.
    pub(super) fn drain(&mut self) -> Result<(), String> {
        self.seats.iter_mut().for_each(Seat::drain);
        let mut problems = Vec::new();
        self.until("all have drained", |driver| {
            for seat in &mut driver.seats {
                if let Some(Err(how)) = seat.drained() {
                    problems.push(format!("G6 {} has not drained: {how}", seat.name));
                }
            }
            driver.seats.iter().all(|seat| !seat.is_running())
        })?;
        self.outcome.verdict.broken.extend(problems);
        Ok(())
    }
}
