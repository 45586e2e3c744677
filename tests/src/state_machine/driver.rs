use std::time::{Duration, Instant};

use posta::Outbox;
use posta::operations::Operator;
use posta::operations::operator::{
    OperatorError, OperatorErrorKind, RedispatchSelection, RunOrder,
};
use posta::store::{Due, LetterFilter, LetterId, LetterState, RunId, RunState, Store};

use super::checker::{judge, missing, restless};
use super::command::{Command, KEYS};
use super::model::{Model, Sent};
use super::process::Process;
use super::service::{Content, Faults, create_table, envelope, plain};
use super::tables::{Snapshot, details, snapshot};
use crate::harness;
use crate::world::effects::rows;
use crate::world::{BrokerKind, TestDatabase, World, until};

/// How long everything that can run may take to run.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often all that is dead is replayed in the end: what dies meanwhile, of a process that was
/// killed, is replayed once more.
const ROUNDS_MAX: usize = 8;

/// The system under test: two processes on one database, an operator, and whoever sends. After each
/// command the tables are judged.
pub(super) struct Driver<D: TestDatabase> {
    store: D::Store,
    outbox: Outbox<D>,
    operator: Operator<D>,
    faults: Faults,
    processes: [Option<Process>; 2],
    /// A process has died since all was at rest.
    died: bool,
    is_new: [bool; 2],
    model: Model,
    // Last: the database goes when nobody uses it any more.
    world: World<D>,
}

impl<D> Driver<D>
where
    D: TestDatabase + harness::database::TestDatabase,
{
    /// A fresh database with two processes on it.
    pub(super) async fn begin() -> Self {
        let world = World::<D>::fresh(BrokerKind::Database).await;
        let store = world.store();
        let mut session = store.begin().await.expect("a transaction");
        <D as TestDatabase>::run(&mut session, &create_table(D::KIND))
            .await
            .expect("the test's own table");
        session.commit().await.expect("a commit");
        let mut driver = Self {
            outbox: Outbox::new(world.tables.clone()),
            operator: Operator::new(store.clone(), "operator").expect("a name"),
            store,
            faults: Faults::default(),
            processes: [None, None],
            died: false,
            is_new: [false; 2],
            model: Model::default(),
            world,
        };
        driver.start_missing().await;
        // From then on only late types are unroutable.
        until("both consumers are known", async || {
            rows::<D>(&driver.store, "subscription", "true").await == 4
        })
        .await;
        driver
    }

    /// Carries out a command, and judges.
    pub(super) async fn obey(&mut self, command: &Command) -> Result<(), String> {
        tracing::info!(?command, "next");
        self.start_missing().await;
        match *command {
            Command::Send {
                kind,
                key,
                count,
                fault,
                takes,
            } => {
                let takes = Duration::from_millis(u64::from(takes));
                let first = self.model.sent.len();
                if let Some(fault) = fault {
                    self.faults.set(first, fault);
                }
                let content = |number| Content { number, takes };
                let envelopes: Vec<_> = (first..first + usize::from(count))
                    .map(|number| envelope(kind, KEYS[key], content(number)))
                    .collect();
                let ids: Vec<String> = envelopes.iter().map(|it| plain(it.id)).collect();
                let mut session = self.store.begin().await.expect("a transaction");
                self.outbox
                    .enqueue_envelopes(&mut session, &envelopes)
                    .await
                    .expect("messages are enqueued");
                session.commit().await.expect("a commit");
                for (index, id) in ids.into_iter().enumerate() {
                    self.model.sent.push(Sent {
                        id,
                        kind,
                        key: KEYS[key],
                        scheduled: false,
                        cancelled: false,
                        fails: index == 0 && fault.is_some(),
                    });
                }
            }
            Command::Schedule { kind, key, after } => {
                let content = Content {
                    number: self.model.sent.len(),
                    takes: Duration::ZERO,
                };
                let due = Due::After(Duration::from_millis(u64::from(after)));
                let envelope = envelope(kind, KEYS[key], content);
                let mut session = self.store.begin().await.expect("a transaction");
                let id = self
                    .outbox
                    .schedule_envelope(&mut session, envelope, due)
                    .await
                    .expect("a message is scheduled");
                session.commit().await.expect("a commit");
                self.model.sent.push(Sent {
                    id: plain(id),
                    kind,
                    key: KEYS[key],
                    scheduled: true,
                    cancelled: false,
                    fails: false,
                });
            }
            Command::CancelScheduled { which } => self.cancel_scheduled(which).await,
            Command::Heal { which } => self.faults.heal(which),
            Command::Crash { process, at } => {
                self.model.disturbances += 1;
                match (at, self.processes[process].take()) {
                    (Some((point, times)), Some(it)) => {
                        it.arm(point, times);
                        self.processes[process] = Some(it);
                    }
                    (None, Some(it)) => {
                        it.kill().await;
                        self.died = true;
                    }
                    (_, None) => {}
                }
            }
            Command::Restart { process } => self.restart(process).await,
            Command::Upgrade { process } => {
                self.is_new[process] = true;
                self.restart(process).await;
            }
            Command::LoseLeases { rank } => self.lose_leases(Some(rank)).await,
            Command::Replay { which } => {
                if let Some(letter) = self.letter(which, LetterState::Dead, None).await {
                    let done = self.operator.replay(letter, "try it again").await;
                    self.note("replay", done)?;
                }
            }
            Command::Skip { which } => {
                if let Some(letter) = self.letter(which, LetterState::Dead, Some(true)).await {
                    let done = self.operator.skip(&[letter], "go on without it").await;
                    self.note("skip", done)?;
                }
            }
            Command::Discard { which } => {
                if let Some(letter) = self.letter(which, LetterState::Dead, None).await {
                    let done = self.operator.discard(&[letter], "nobody needs it").await;
                    self.note("discard", done)?;
                }
            }
            Command::Restore { which } => {
                if let Some(letter) = self.letter(which, LetterState::Discarded, None).await {
                    let done = self.operator.restore(&[letter], "it is needed").await;
                    self.note("restore", done)?;
                }
            }
            Command::Run { failures_max } => {
                let order = RunOrder {
                    rate: None,
                    failures_max: failures_max.map(u32::from),
                };
                let all = LetterFilter::default();
                let begun = self.operator.begin_run(&all, order, "it is mended").await;
                self.note("begin-run", begun.map(drop))?;
            }
            Command::Pause => {
                if let Some(run) = self.run_in(&[RunState::Running]).await {
                    let done = self.operator.pause(run, "wait").await;
                    self.note("pause", done)?;
                }
            }
            Command::Resume => {
                let resumed = [RunState::Paused, RunState::Stopped];
                if let Some(run) = self.run_in(&resumed).await {
                    let done = self.operator.resume(run, "go on").await;
                    self.note("resume", done)?;
                }
            }
            Command::Cancel => self.cancel_run().await.map(drop)?,
            Command::Redispatch => {
                self.model.redispatched = true;
                let all = RedispatchSelection::default();
                let redispatch = self.operator.redispatch(&all, "the broker lost its disk");
                let mut redispatch = redispatch.await.expect("a cut-off");
                redispatch.finish(|_| {}).await.expect("rows go out again");
            }
            Command::Work { ms } => {
                actix_rt::time::sleep(Duration::from_millis(u64::from(ms))).await;
            }
            Command::Settle => return self.settle().await.map(drop),
        }
        self.look().await.map(drop)
    }

    /// Mends everything, replays everything, and judges what is left: nothing may be missing.
    pub(super) async fn finish(&mut self) -> Result<(), String> {
        tracing::info!("mend and replay everything");
        while self.cancel_run().await? {}
        self.faults.heal_all();
        self.is_new = [true; 2];
        for process in 0..2 {
            self.restart(process).await;
        }
        for _ in 0..ROUNDS_MAX {
            let found = self.settle().await?;
            if found.letters.iter().all(|letter| letter.state != "dead") {
                let missing = missing(&self.model, &found);
                return match missing.is_empty() {
                    true => Ok(()),
                    false => Err(report("missing in the end", &missing, &found)),
                };
            }
            let all = LetterFilter::default();
            let begun = self
                .operator
                .begin_run(&all, RunOrder::default(), "everything is mended")
                .await;
            self.note("begin-run", begun.map(drop))?;
            self.until_run_ends().await?;
        }
        let found = self.look().await?;
        Err(report("dead again and again", &[], &found))
    }

    /// Ends the processes, whatever state they are in.
    pub(super) async fn end(mut self) {
        for process in &mut self.processes {
            if let Some(process) = process.take() {
                process.kill().await;
            }
        }
    }

    /// Starts the processes that have died or were killed.
    async fn start_missing(&mut self) {
        for number in 0..2 {
            let process = &mut self.processes[number];
            if process.as_ref().is_some_and(Process::is_dead)
                && let Some(dead) = process.take()
            {
                dead.kill().await;
                self.died = true;
            }
            if process.is_none() {
                let started =
                    Process::start::<D>(&self.world, &self.faults, self.is_new[number]).await;
                *process = Some(started);
            }
        }
    }

    async fn restart(&mut self, number: usize) {
        self.model.disturbances += 1;
        if let Some(process) = self.processes[number].take() {
            process.drain().await;
        }
        self.start_missing().await;
    }

    /// Has one process forgotten and its leases run out, as time does with one that died; all of
    /// them without a rank. Those who run do not know.
    async fn lose_leases(&mut self, rank: Option<usize>) {
        self.model.disturbances += 1;
        let table = |noun| <D as harness::database::TestDatabase>::table(self.store.tables(), noun);
        let (lease, member) = (table("lease"), table("member"));
        let past = match D::KIND {
            "sqlite" => "1",
            _ => "timestamptz '2000-01-01'",
        };
        let owners = format!("(SELECT DISTINCT owner FROM {lease} WHERE owner IS NOT NULL)");
        let owners = match rank {
            None => owners,
            Some(rank) => {
                format!("(SELECT owner FROM {owners} AS o ORDER BY owner LIMIT 1 OFFSET {rank})")
            }
        };
        let sql = format!(
            "DELETE FROM {member} WHERE member IN {owners}; \
             UPDATE {lease} SET expires_at = {past} WHERE owner IN {owners}"
        );
        let mut session = self.store.begin().await.expect("a transaction");
        // It may meet a keeper's; then it is not to be.
        match <D as TestDatabase>::run(&mut session, &sql).await {
            Ok(()) => session.commit().await.expect("a commit"),
            Err(_) => session.rollback().await,
        }
    }

    async fn cancel_scheduled(&mut self, which: usize) {
        let mut scheduled: Vec<&mut Sent> = self
            .model
            .sent
            .iter_mut()
            .filter(|sent| sent.scheduled && !sent.cancelled)
            .collect();
        let count = scheduled.len().max(1);
        let Some(sent) = scheduled.get_mut(which % count) else {
            return;
        };
        let id: uuid::Uuid = sent.id.parse().expect("a message id");
        let mut session = self.store.begin().await.expect("a transaction");
        let cancelled = self
            .outbox
            .cancel_scheduled(&mut session, id.into())
            .await
            .expect("an answer");
        session.commit().await.expect("a commit");
        sent.cancelled = cancelled;
    }

    /// One of the letters in a state.
    async fn letter(
        &self,
        which: usize,
        state: LetterState,
        parked: Option<bool>,
    ) -> Option<LetterId> {
        let filter = LetterFilter {
            parked,
            states: vec![state],
            ..LetterFilter::default()
        };
        let letters = self.operator.letters(&filter, None, 1000).await;
        let letters = letters.expect("the letters");
        letters
            .get(which % letters.len().max(1))
            .map(|letter| letter.id)
    }

    /// The newest run in one of these states.
    async fn run_in(&self, states: &[RunState]) -> Option<RunId> {
        let runs = self.operator.runs(1000).await.expect("the runs");
        let mut runs = runs.into_iter();
        runs.find(|run| states.contains(&run.state))
            .map(|run| run.id)
    }

    async fn cancel_run(&mut self) -> Result<bool, String> {
        let open = [RunState::Running, RunState::Paused, RunState::Stopped];
        let Some(run) = self.run_in(&open).await else {
            return Ok(false);
        };
        let done = self.operator.cancel(run, "enough").await;
        self.note("cancel", done)?;
        Ok(true)
    }

    /// Counts an action that was done; one that came too late is none.
    fn note(
        &mut self,
        action: &'static str,
        done: Result<(), OperatorError>,
    ) -> Result<(), String> {
        match done {
            Ok(()) => *self.model.actions.entry(action).or_default() += 1,
            Err(error)
                if matches!(
                    error.kind(),
                    OperatorErrorKind::State | OperatorErrorKind::NotFound
                ) => {}
            Err(error) => return Err(format!("{action}: {error:?}")),
        }
        Ok(())
    }

    /// Judges the tables as they are.
    async fn look(&self) -> Result<Snapshot, String> {
        let found = snapshot::<D>(&self.store).await;
        let broken = judge(&self.model, &found);
        match broken.is_empty() {
            true => Ok(found),
            false => Err(report("broken", &broken, &found)),
        }
    }

    /// Waits until everything that can run has run, and judges all the while.
    async fn settle(&mut self) -> Result<Snapshot, String> {
        for process in self.processes.iter().flatten() {
            process.disarm();
        }
        // A rolling deployment ends: what the one process knows the other one will know.
        let upgraded = self.is_new.contains(&true);
        for number in 0..2 {
            if upgraded && !self.is_new[number] {
                self.is_new[number] = true;
                self.restart(number).await;
            }
        }
        let started = Instant::now();
        loop {
            self.start_missing().await;
            if std::mem::take(&mut self.died) {
                // Nobody has to wait for the dead one's time to pass.
                self.lose_leases(None).await;
            }
            let found = self.look().await?;
            let restless = restless(&found);
            if restless.is_empty() {
                return Ok(found);
            }
            if started.elapsed() > PATIENCE {
                let title = format!("not at rest after {PATIENCE:?}");
                let mut wrong = restless;
                wrong.extend(details::<D>(&self.store).await);
                for (number, process) in self.processes.iter().enumerate() {
                    let story = process.iter().flat_map(Process::story);
                    wrong.extend(story.map(|line| format!("process {number}: {line}")));
                }
                return Err(report(&title, &wrong, &found));
            }
            actix_rt::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the replay run has put all its letters on their way.
    async fn until_run_ends(&mut self) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let runs = self.operator.runs(1).await.expect("the runs");
            let waiting = runs.iter().any(|run| run.counts.waiting > 0);
            if !waiting {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                return Err(format!("a run does not go on: {runs:?}"));
            }
            actix_rt::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What is wrong, and all that the tables say.
fn report(title: &str, wrong: &[String], found: &Snapshot) -> String {
    format!("{title}:\n  {}\n{found:#?}", wrong.join("\n  "))
}
