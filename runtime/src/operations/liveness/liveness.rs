use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::{Finding, Kind, Subject, Subjects, dispatcher, keeper, partition};
use crate::broker::BrokerDriver;
use crate::store::{Database, Store, StoreError, StoreErrorKind};
use crate::supervision::{ChildError, ChildState, Doing, Life};

/// Shortest time that database and broker have for an answer.
const ANSWER_TIMEOUT_MIN: Duration = Duration::from_secs(10);

/// Looks at every subject once per lease period: the body of the liveness actor, one per process.
#[derive(Clone)]
pub(crate) struct Liveness<D: Database> {
    pub(crate) store: D::Store,
    pub(crate) driver: Arc<dyn BrokerDriver<D>>,
    pub(crate) subjects: Subjects,
    /// Between two looks.
    pub(crate) interval: Duration,
}

impl<D: Database> Liveness<D> {
    /// Looks until the runtime drains. A look that the drain finds under way is dropped.
    pub(crate) async fn run(self, life: Life) -> Result<(), ChildError> {
        // What its last incarnation found is too old to be "in a row".
        self.subjects.forget();
        tokio::select! {
            () = self.watch(&life) => {}
            () = life.draining() => {}
        }
        Ok(())
    }

    async fn watch(&self, life: &Life) {
        let mut failures = 0;
        loop {
            tokio::time::sleep(self.interval).await;
            let registry = &life.registry;
            self.subjects.keep(|child| registry.child(child).is_some());
            let subjects = self.subjects.all();
            match self.ask_database(life, &subjects).await {
                Ok(findings) => {
                    if failures > 0 {
                        failures = 0;
                        life.recovered();
                    }
                    let looks = subjects.iter().zip(findings);
                    let looks = looks.map(|(subject, finding)| self.look(life, subject, finding));
                    join_all(looks).await;
                    registry.confirmed(&life.name, "looked at all actors".to_owned());
                }
                Err(error) => {
                    self.subjects.forget();
                    failures += 1;
                    life.sit_out(failures, &error).await;
                }
            }
        }
    }

    /// Everything that is asked of the database, in one transaction: it says too whether the
    /// database answers.
    async fn ask_database(
        &self,
        life: &Life,
        subjects: &[Subject],
    ) -> Result<Vec<Option<Finding>>, StoreError> {
        let ask = async {
            let mut session = self.store.begin().await?;
            let mut findings = Vec::with_capacity(subjects.len());
            for subject in subjects {
                findings.push(match subject.kind {
                    Kind::Dispatcher { index, of, .. } if runs(life, subject) => {
                        let (board, lanes) = (&subject.board, (index, of));
                        Some(dispatcher::look(&self.store, &mut session, board, lanes).await?)
                    }
                    _ => None,
                });
            }
            session.commit().await?;
            Ok(findings)
        };
        let answered = tokio::time::timeout(self.answer_timeout(), ask).await;
        answered.unwrap_or_else(|_elapsed| {
            Err(StoreError::new(
                "look whether all actors make progress",
                StoreErrorKind::Unavailable,
                format!("no answer within {:?}", self.answer_timeout()),
            ))
        })
    }

    /// Looks at one subject, of which the database said this.
    async fn look(&self, life: &Life, subject: &Subject, asked: Option<Finding>) {
        let progress = &subject.progress;
        let at_work_for = self.subjects.with(&subject.child, |suspicion| {
            suspicion.at_work_for(progress, Instant::now())
        });
        let at_work_for = at_work_for.flatten();
        let finding = match &subject.kind {
            _ if !runs(life, subject) => Finding::Explained,
            Kind::Dispatcher { patience, .. } if progress.doing() == Doing::Working => {
                Finding::of_work(at_work_for, *patience)
            }
            Kind::Mover { patience } => Finding::of_work(at_work_for, *patience),
            Kind::Dispatcher { .. } => asked.unwrap_or(Finding::Explained),
            Kind::Keeper { ttl } => keeper::look(&subject.board, *ttl),
            Kind::Partition {
                queue,
                layout,
                patience,
            } => {
                let mut queue = queue.clone();
                if let Some(layout) = layout.current() {
                    queue.generation = layout.generation;
                }
                let look = partition::look(&*self.driver, &queue, progress, at_work_for, *patience);
                let looked = tokio::time::timeout(self.answer_timeout(), look).await;
                looked.unwrap_or_else(|_elapsed| partition::without_answer(&"no answer in time"))
            }
        };
        self.take(life, subject, finding);
    }

    /// How long database and broker may take to answer a look: short leases make nobody faster.
    fn answer_timeout(&self) -> Duration {
        self.interval.max(ANSWER_TIMEOUT_MIN)
    }

    /// Notes a finding; a difference that has lasted is a failure.
    fn take(&self, life: &Life, subject: &Subject, finding: Finding) {
        if let Finding::Well(how) = &finding {
            life.registry.confirmed(&subject.child, how.clone());
        }
        let lasting = self.subjects.with(&subject.child, |suspicion| {
            suspicion.judge(&finding, &subject.progress, Instant::now())
        });
        if let Some(difference) = lasting.flatten() {
            tracing::error!(child = %subject.child, %difference, "it runs and is not alive");
            subject.concern.restart(subject.child.clone(), difference);
        }
    }
}

/// Whether a subject runs and misses nothing, as far as the registry knows.
fn runs(life: &Life, subject: &Subject) -> bool {
    let status = life.registry.child(&subject.child);
    status.is_some_and(|status| status.state == ChildState::Running)
}
