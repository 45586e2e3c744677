//! The main job: the service under load, with crashes and duplicates, and the account of it.
//!
//! ```text
//! this process     signs, enqueues copies, watches; as every process of Posta it dispatches too
//!   ├─ worker "consumers"     notifications and mailbox        both killed by SIGKILL part-way
//!   └─ worker "dispatcher"    no consumers                     and started again at once
//! ```
//!
//! Everything that a run is and has done stands in tables, so any of these processes can be killed
//! at any moment and the same command goes on: the target, the seed and the copies in the tables of
//! [`records`]; which documents are signed in the service's own. Each step is one transaction that
//! changes nothing when it is repeated, so it is repeated through outages too.
//!
//! The end is found without asking the broker: when everything is signed and has left the outbox, a
//! line is drawn under each document ([`lines`]), a message behind all others of its key. When the
//! lines have come through both consumers, so has everything before.

mod copies;
mod lines;
mod records;
mod signing;
mod stuck;
mod tally;
mod worker;

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use posta::operations::TransactionError;
use posta::store::Store;
use posta::supervision::ChildState;
use posta::{Broker, Database, Posta, Tx};

use crate::crew::{Crew, Order, Role};
use crate::error::JobError;
use crate::flags::Flags;
use crate::ledger::Ledger;
use crate::progress::{Progress, Reached};

use self::records::Run;
pub(crate) use self::worker::work;
use super::Db;

/// The database's connection.
type Connection = <Db as Database>::Connection;

/// A killed worker's lanes and partitions rest for this long at most.
const LEASE_TTL: Duration = Duration::from_secs(2);

/// Between two looks at the tables.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Runs the main job on a database and a broker, or goes on with it; returns its ledger.
pub(crate) async fn run(
    flags: &Flags,
    database: &str,
    progress: &Progress,
) -> Result<Ledger, JobError> {
    let posta = Posta::<Db>::builder(database, Broker::from_url(&flags.broker)?)
        .migrate_at_start(true)
        .lease_ttl(LEASE_TTL)
        .start()
        .await?;
    let outcome = run_on(&posta, flags, database, progress).await;
    // What is left is for the next process; an unclean end here changes nothing of what was
    // counted.
    if let Err(error) = posta.stop().await {
        progress.say(format!("{error}"));
    }
    outcome
}

async fn run_on(
    posta: &Posta<Db>,
    flags: &Flags,
    database: &str,
    progress: &Progress,
) -> Result<Ledger, JobError> {
    let mut job = Job {
        posta: posta.clone(),
        progress: progress.clone(),
        patience: flags.patience(),
        run: Run::default(),
        crew: RefCell::new(None),
        outage: Cell::new(false),
    };
    job.create_tables().await?;
    job.run = job.begin_or_resume(flags).await?;
    if !job.run.is_finished() {
        let orders = [Role::Consumers, Role::Dispatcher];
        let orders = orders
            .map(|role| Order::new(role, database, &flags.broker))
            .into();
        *job.crew.borrow_mut() = Some(Crew::start(orders, progress)?);
        let outcome = tokio::select! {
            done = job.work() => done,
            stuck = job.watch() => stuck,
            () = crate::interrupted() => Err(JobError::Interrupted),
        };
        progress.end();
        let crew = job.crew.borrow_mut().take();
        if let Some(crew) = crew {
            crew.stop().await;
        }
        if let Err(JobError::Stuck(stuck)) = outcome {
            let ledger = job.tally(&flags.broker).await?;
            return Ok(Ledger {
                stuck: Some(stuck),
                ..ledger
            });
        }
        outcome?;
    }
    job.tally(&flags.broker).await
}

/// One process's work on a run.
struct Job {
    posta: Posta<Db>,
    progress: Progress,
    patience: Duration,
    run: Run,
    crew: RefCell<Option<Crew>>,
    /// Whether the user has been told that something is away.
    outage: Cell<bool>,
}

impl Job {
    /// Everything from the first signature to the last line.
    async fn work(&self) -> Result<(), JobError> {
        self.warm_up().await?;
        futures_util::try_join!(self.sign_all(), self.copy_all())?;
        self.until_outbox_is_empty().await?;
        self.draw_lines(self.run.documents).await?;
        self.until_lines_are_through(self.run.documents).await?;
        self.until_outbox_is_empty().await?;
        self.finish().await
    }

    /// Looks after the workers and moves the bars; ends only when nothing has moved for too long.
    async fn watch(&self) -> Result<(), JobError> {
        let mut last = (Reached::default(), Instant::now());
        let mut began = false;
        // Told only what is still so at the next look.
        let mut missing = false;
        loop {
            if let Some(crew) = self.crew.borrow_mut().as_mut() {
                crew.watch()?;
            }
            match self.reached().await {
                Ok(reached) => {
                    match began {
                        true => self.progress.show(reached),
                        false => self
                            .progress
                            .begin(self.run.documents.unsigned_abs(), reached),
                    }
                    began = true;
                    if reached != last.0 {
                        last = (reached, Instant::now());
                    }
                    match self.missing() {
                        Some(why) if missing => self.away(&why),
                        Some(_) => missing = true,
                        None => {
                            missing = false;
                            self.back();
                        }
                    }
                }
                // A database that is away is waited for by whoever works; here it is not seen.
                Err(error) if error.is_transient::<Db>() => {}
                Err(error) => return Err(error),
            }
            if last.1.elapsed() > self.patience {
                return Err(JobError::Stuck(self.what_is_stuck().await));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Why an actor of this process waits for something that is not there, if one does.
    fn missing(&self) -> Option<String> {
        let children = self.posta.registry().children().into_iter();
        children
            .into_iter()
            .find_map(|(_, child)| match child.state {
                ChildState::Degraded(why) => Some(why),
                ChildState::BackingOff => {
                    Some(child.last_error.map(|(why, _)| why).unwrap_or_default())
                }
                _ => None,
            })
    }

    /// Says once that something is away.
    fn away(&self, why: &str) {
        if !self.outage.replace(true) {
            self.progress.say(format!("waiting: {why}"));
        }
    }

    /// Says that it is back, if it was away.
    fn back(&self) {
        if self.outage.replace(false) {
            self.progress.say("it goes on");
        }
    }

    /// Kills a worker, on record.
    async fn kill(&self, role: Role) -> Result<(), JobError> {
        let killed = match self.crew.borrow_mut().as_mut() {
            Some(crew) => crew.kill(role)?,
            None => false,
        };
        if killed {
            self.progress.note(format!(
                "the {} worker was killed (SIGKILL) and is started again",
                role.name()
            ));
            self.count_kill().await?;
        }
        Ok(())
    }

    /// Runs a transaction that may be repeated, until it commits.
    async fn transaction<T>(
        &self,
        mut work: impl AsyncFnMut(&mut Tx<'_, Db>) -> Result<T, JobError>,
    ) -> Result<T, JobError> {
        self.persist(async || self.posta.transaction(async |tx| work(tx).await).await)
            .await
    }

    /// Reads, in one transaction that holds up nobody.
    async fn read<T>(
        &self,
        mut work: impl AsyncFnMut(&mut Connection) -> Result<T, JobError>,
    ) -> Result<T, JobError> {
        self.persist(async || self.read_once(&mut work).await).await
    }

    async fn read_once<T>(
        &self,
        mut work: impl AsyncFnMut(&mut Connection) -> Result<T, JobError>,
    ) -> Result<T, JobError> {
        let session = self.posta.store().begin_read().await;
        let mut session = session.map_err(TransactionError::Store)?;
        let value = work(&mut session).await;
        session.rollback().await;
        value
    }

    /// Does a step that may be repeated, until it succeeds, through outages and contention.
    async fn persist<T>(
        &self,
        mut step: impl AsyncFnMut() -> Result<T, JobError>,
    ) -> Result<T, JobError> {
        let began = Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            match step().await {
                Err(error) if error.is_transient::<Db>() && began.elapsed() < self.patience => {
                    if !error.is_contention::<Db>() {
                        self.away(&error.chain());
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                done => return done,
            }
        }
    }
}
