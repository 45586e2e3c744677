use super::HandleError;
use super::aside::{Aside, Death};
use super::batch::{Handled, message_id};
use super::disturbance::Interruption;
use super::partition::Partition;
use super::verdict::Verdict;
use crate::broker::{Delivery, Subscription};
use crate::message::Envelope;
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
    ) -> Result<Handled, Interruption> {
        let one = std::slice::from_ref(delivery);
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
            let Ok(envelope) = &delivery.message else {
                // It has no handler that could fail: the database does not take the dead letter.
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a malformed message could not be set aside"
                );
                return Ok(Handled::Committed { next_retry: None });
            };
            let policy = self.handlers.policy(envelope.message_type.as_str());
            let verdict = Verdict::of(policy, attempt, &error);
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
    ) -> Result<Handled, Interruption> {
        let one = std::slice::from_ref(delivery);
        let mut session = self.store.begin().await?;
        let Admission::Admitted { fresh, .. } = self.admit(&mut session, fence, one).await? else {
            session.rollback().await;
            return Ok(Handled::LeaseLost);
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
        Ok(Handled::Committed { next_retry })
    }
}
