use rand::RngExt as _;

use super::driver::Driver;
use super::message::{AUDIT, BILLING, LEDGER};
use super::seat::Seat;

impl Driver<'_> {
    /// A consumer's queues are deleted with messages in them; an operator sends again what was
    /// dispatched. So that the lost messages are not overtaken by later ones of their keys, as nobody
    /// promises, everything stands still meanwhile: all that was sent is in the queues when they go.
    pub(super) fn lose_queues(&mut self) -> Result<(), String> {
        self.tell("all processes end, for queues to be lost");
        self.set_rate_patiently(0)?;
        self.heal_all_but_processes()?;
        for number in 0..self.seats.len() {
            self.kill(number)?;
        }
        let all = self.seats.len() - 1;
        let mut dispatching = self.seat(all, "dispatching", &[], false);
        dispatching.start(None);
        let tables = self.ground.tables.clone();
        let outbox = "SELECT COUNT(*) FROM {posta}outbox";
        self.until("the outbox is empty", |_| tables.number(outbox) == Ok(0))?;
        drop(dispatching);
        let consumer = [LEDGER, BILLING, AUDIT][self.rng.random_range(0..3)];
        let lost = self.ground.delete_queues(consumer)?;
        self.count("queues deleted");
        self.tell(&format!("{consumer} loses its queues with {lost} messages"));
        let mut declaring = self.seat(all, "declaring", &[consumer], false);
        declaring.start(None);
        self.until("the queues are there again", |_| declaring.is_ready())?;
        let again = self.ground.redispatch()?;
        self.tell(&format!("{again} rows go out again"));
        drop(declaring);
        for number in 0..self.seats.len() {
            self.start(number, None);
        }
        self.until("all are ready", |driver| {
            driver.seats.iter().all(Seat::is_ready)
        })?;
        self.set_rate(self.plan.rate)
    }
}
