use std::time::{Duration, Instant};

use super::HandleError;
use super::aside::{Aside, Death};
use super::batch::{Taken, message_id};
use super::disturbance::Interruption;
use super::partition::Partition;
use super::verdict::Verdict;
use crate::broker::{Delivery, Subscription};
use crate::message::Envelope;
use crate::retry::DEADLINE_MAX;
use crate::store::{Admission, Database, Fence, Store};
use crate::supervision::{crash_point, error_chain};

impl<D: Database> Partition<D> {
    /// Handles one delivery in a transaction of its own, at once again as often as its policy says;
    /// what has failed then is put into the retry table, or set aside. `failed` is its first
    /// failure, if it was tried already.
    pub(super) async fn handle_alone(
        &self,
        fence: &Fence,
        subscription: &mut dyn Subscription<D>,
        delivery: &Delivery,
        mut failed: Option<HandleError>,
    ) -> Result<Taken, Interruption> {
        let one = std::slice::from_ref(delivery);
        let envelope = match &delivery.message {
            Ok(envelope) => envelope,
            // It has no handler that could fail: it is set aside, as soon as the database takes it.
            Err(malformed) => {
                let mut aside = Aside::default();
                let (letter, place) = self.malformed_letter(malformed);
                aside.bury(letter, place);
                return self
                    .settle_failed(fence, subscription, delivery, aside)
                    .await;
            }
        };
        let policy = self.handlers.policy(envelope.message_type.as_str());
        let began = Instant::now();
        let mut attempt = 1;
        loop {
            let tried = match failed.take() {
                Some(error) => Err(error),
                None => {
                    self.handle_together(fence, subscription, one, attempt, &mut 0)
                        .await?
                }
            };
            let error = match tried {
                Ok(handled) => return Ok(handled),
                Err(error) => error,
            };
            let verdict = match Verdict::of(policy, attempt, &error) {
                // The broker does not wait for longer. What is in the retry table, it does not
                // wait for.
                Verdict::AtOnce if began.elapsed() + policy.deadline > DEADLINE_MAX => {
                    Verdict::Later(Duration::ZERO)
                }
                verdict => verdict,
            };
            self.tell_failed(envelope, attempt, &error, verdict);
            if verdict != Verdict::AtOnce {
                let mut aside = Aside::default();
                self.sentence(envelope, attempt, &error, verdict, &mut aside);
                return self
                    .settle_failed(fence, subscription, delivery, aside)
                    .await;
            }
            attempt += 1;
        }
    }

    pub(super) fn tell_failed(
        &self,
        envelope: &Envelope,
        attempt: u32,
        error: &HandleError,
        verdict: Verdict,
    ) {
        tracing::warn!(
            consumer = %self.queue.consumer,
            message_id = %envelope.id,
            message_type = %envelope.message_type,
            attempt,
            then = ?verdict,
            error = %error_chain(error),
            "a handler failed"
        );
    }

    /// Notes what is to become of a delivery that has failed.
    fn sentence(
        &self,
        envelope: &Envelope,
        attempt: u32,
        error: &HandleError,
        verdict: Verdict,
        aside: &mut Aside,
    ) {
        let error = error_chain(error);
        match verdict {
            Verdict::AtOnce => {}
            Verdict::Later(delay) => aside.hold(self.failed(envelope, attempt, error, delay)),
            Verdict::DeadLetter(reason) => {
                let death = Death {
                    reason,
                    error,
                    attempts: attempt,
                };
                let (letter, place) = self.letter(envelope, death);
                aside.bury(letter, place);
            }
        }
    }

    /// Puts a delivery that has failed into the retry table or sets it aside: with its inbox id, in
    /// one transaction, after which it is acknowledged.
    async fn settle_failed(
        &self,
        fence: &Fence,
        subscription: &mut dyn Subscription<D>,
        delivery: &Delivery,
        mut aside: Aside,
    ) -> Result<Taken, Interruption> {
        let one = std::slice::from_ref(delivery);
        let mut session = self.store.begin().await?;
        let Admission::Admitted { fresh, .. } = self.admit(&mut session, fence, one).await? else {
            session.rollback().await;
            return Ok(Taken::LeaseLost);
        };
        if message_id(delivery).is_some_and(|id| !fresh.contains(&id)) {
            // Another owner has settled it meanwhile.
            aside = Aside::default();
        }
        let next_retry = self.put_aside(&mut session, &mut aside).await?;
        subscription
            .acknowledge_within(&mut session, &[delivery.tag])
            .await?;
        session.commit().await?;
        crash_point!("consume.held");
        self.note(0, 0, &aside);
        self.acknowledge(subscription, one, &[delivery.tag]).await?;
        Ok(Taken::Committed { next_retry })
    }
}
