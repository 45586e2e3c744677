//! Who dies, and who is started again.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::RngExt as _;

use super::disturbance::Undo;
use super::driver::Driver;
use super::fault::Fault;
use super::message::AUDIT;
use super::points::{OF_LAYOUTS, Point};
use super::seat::{End, Seat};

/// A process that is to die at a point and does not come by is killed after so long: the leases of its
/// predecessor run out first.
const AIM_TIME: Duration = Duration::from_secs(14);
/// Reached only by who reads a dead queue with something in it: [`AUDIT`]'s.
pub(super) const DEAD_QUEUE: &str = "dead_queue.committed";

impl Driver<'_> {
    /// Notes who has died, starts who is missing, and undoes what is over.
    pub(super) fn attend(&mut self) -> Result<(), String> {
        for number in 0..self.seats.len() {
            if let Some(end) = self.seats[number].ended() {
                self.note(number, end)?;
            }
            let seat = &self.seats[number];
            let aimed_in_vain = seat.aim().is_some() && seat.age() > AIM_TIME && !seat.is_stopped();
            if aimed_in_vain {
                self.kill(number)?;
            }
            if !self.seats[number].is_running() {
                // The points of a change are passed once in each.
                let share = if self.plan.redivides { 0.95 } else { 0.6 };
                let aim = self
                    .rng
                    .random_bool(share)
                    .then(|| self.next_aim(number))
                    .flatten();
                self.start(number, aim);
            }
        }
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.undo)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.undo = later;
        let due: Vec<(Instant, Undo)> = due;
        due.into_iter().for_each(|(_, undo)| self.undo(undo));
        if self.server.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join_server()?;
        }
        Ok(())
    }

    pub(super) fn note(&mut self, number: usize, end: End) -> Result<(), String> {
        let name = self.seats[number].name;
        match end {
            End::Crashed(point) => {
                self.tell(&format!("{name} has crashed at {point}"));
                self.tally.hit(point);
                self.outcome.tally.hit(point);
                Ok(())
            }
            End::Unasked(how) => Err(format!("G6 {name} has ended by itself: {how}")),
        }
    }

    /// Kills a process at a random time; it may have come to its point a moment before.
    pub(super) fn kill(&mut self, number: usize) -> Result<(), String> {
        let aim = self.seats[number].aim();
        if let Some(end) = self.seats[number].kill() {
            return self.note(number, end);
        }
        if let Some(point) = aim {
            self.tally.miss(point);
        }
        let name = self.seats[number].name;
        self.tell(&format!("{name} is killed, aim {aim:?}"));
        self.count(Fault::Kill.kind());
        Ok(())
    }

    pub(super) fn start(&mut self, number: usize, aim: Option<(Point, u64)>) {
        let name = self.seats[number].name;
        let aimed = aim.map(|(point, times)| (point.name, times));
        self.tell(&format!("{name} is started, aim {aimed:?}"));
        // What was silent to the last one need not be to this one, and the other way round.
        self.seats[number].start(aim);
    }

    /// Sees to it that enough processes are to die at a point.
    pub(super) fn aim(&mut self) {
        let aimed = self
            .seats
            .iter()
            .filter(|seat| seat.aim().is_some())
            .count();
        if aimed >= self.plan.aims_max || !self.rng.random_bool(0.03) {
            return;
        }
        let number = self.rng.random_range(0..self.seats.len());
        let seat = &self.seats[number];
        // One that has had time to work: what it leaves behind is more.
        if seat.aim().is_some() || seat.age() < Duration::from_secs(4) || seat.is_stopped() {
            return;
        }
        // An end that it has come to by itself is noted at the next look.
        if self.kill(number).is_ok()
            && let Some(aim) = self.next_aim(number)
        {
            self.start(number, Some(aim));
        }
    }

    pub(super) fn next_aim(&mut self, number: usize) -> Option<(Point, u64)> {
        let aimed_at: Vec<&str> = self.seats.iter().filter_map(Seat::aim).collect();
        if aimed_at.len() >= self.plan.aims_max {
            return None;
        }
        let mut not_here = aimed_at;
        if !self.plan.redivides {
            not_here.extend(OF_LAYOUTS);
        }
        let orders = &self.seats[number].orders;
        if !orders.produces {
            not_here.extend(["enqueue.inserted", "enqueue.committed"]);
        }
        if !orders.consumers.iter().any(|name| name == AUDIT) {
            not_here.push(DEAD_QUEUE);
        }
        let (broker, points) = (self.plan.broker, self.plan.points);
        let point = self.tally.next(broker, points, &not_here, &mut self.rng)?;
        Some((point, self.rng.random_range(1..=point.passes_max)))
    }

    pub(super) fn nobody_ended(&mut self) -> Result<(), String> {
        for number in 0..self.seats.len() {
            if let Some(end) = self.seats[number].ended() {
                self.note(number, end)?;
            }
        }
        Ok(())
    }
}
