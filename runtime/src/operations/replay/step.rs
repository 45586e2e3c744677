use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{Pace, Readmission, readmit, recall};
use crate::store::{
    ConnectionOf, DeadLetter, LetterChange, LetterId, LetterState, NewAction, Recall, ReplayRun,
    RunState, Store, StoreError,
};
use crate::supervision::crash_point;

/// Who writes down what a run does by itself.
const POSTA: &str = "posta";

/// What a look for a run's next step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Stepped {
    /// No run is running.
    Idle,
    /// The next step of a run is due in so long; zero when another process is at it.
    Due(Duration),
    /// A step was taken; so many letters went on their way.
    Moved(usize),
    /// A step was taken, and nothing had changed since the last one: the run waits for letters that
    /// are on their way.
    Waited,
}

/// Takes the next step of a run that is due, in one transaction. Looks before it locks: without a
/// run it costs one query.
pub(crate) async fn step<S: Store>(store: &S, patience: Duration) -> Result<Stepped, StoreError> {
    let mut session = store.begin_read().await?;
    let due = store.next_step(&mut session).await;
    session.rollback().await;
    match due? {
        None => return Ok(Stepped::Idle),
        Some(due) if !due.is_zero() => return Ok(Stepped::Due(due)),
        Some(_) => {}
    }
    let mut session = store.begin().await?;
    match step_in(store, &mut session, patience).await {
        Ok(None) => {
            session.rollback().await;
            Ok(Stepped::Due(Duration::ZERO))
        }
        Ok(Some(stepped)) => {
            crash_point!("replay.stepped");
            session.commit().await?;
            crash_point!("replay.committed");
            Ok(stepped)
        }
        Err(error) => {
            session.rollback().await;
            Err(error)
        }
    }
}

async fn step_in<S: Store>(
    store: &S,
    connection: &mut ConnectionOf<S>,
    patience: Duration,
) -> Result<Option<Stepped>, StoreError> {
    let Some(run) = store.take_run(connection).await? else {
        return Ok(None);
    };
    store.settle_run(connection, run.id).await?;
    crash_point!("replay.settled");
    let settled = store.runs(connection, Some(run.id), 1).await?.pop();
    let mut counts = settled.map_or(run.counts, |run| run.counts);
    if counts.waiting == 0 && counts.replaying == 0 {
        end(store, connection, &run, RunState::Finished).await?;
        return Ok(Some(Stepped::Moved(0)));
    }
    if Pace::is_over(&run, run.counts, counts) {
        end(store, connection, &run, RunState::Stopped).await?;
        let stopped = NewAction {
            who: POSTA.to_owned(),
            action: "stop".to_owned(),
            reason: "as many letters have died again as it allows".to_owned(),
            letter: None,
            run: Some(run.id),
            details: format!("{} have died again", counts.failed),
        };
        store.record(connection, &stopped).await?;
        return Ok(Some(Stepped::Moved(0)));
    }
    let mut pace = Pace::of(&run, counts);
    if pace.letters == 0 || counts.waiting == 0 {
        let taken_back = take_back(store, connection, &run).await?;
        counts.replaying -= taken_back;
        counts.left += taken_back;
        pace = Pace::of(&run, counts);
    }
    let moved = match pace.letters {
        0 => 0,
        limit => move_letters(store, connection, &run, limit).await?,
    };
    store
        .pace_run(connection, run.id, pace.pause(moved, patience))
        .await?;
    Ok(Some(if moved == 0 && counts == run.counts {
        Stepped::Waited
    } else {
        Stepped::Moved(moved)
    }))
}

/// Takes those of the run's letters back that wait behind the place of a letter that died after they
/// went; returns how many. Unless an operator acts they would be on their way for ever.
async fn take_back<S: Store>(
    store: &S,
    connection: &mut ConnectionOf<S>,
    run: &ReplayRun,
) -> Result<u64, StoreError> {
    let on_their_way = store.letters_on_their_way(connection, run.id).await?;
    let waiting = store.waiting_for(connection, &on_their_way).await?;
    let heads: HashMap<LetterId, LetterId> = waiting.into_iter().collect();
    let ids: Vec<LetterId> = heads.keys().copied().collect();
    let mut taken_back = 0;
    for letter in &store.lock_letters(connection, &ids).await? {
        if letter.state != LetterState::Replaying
            || recall(store, connection, letter).await? == Recall::Running
        {
            continue;
        }
        taken_back += 1;
        let head = heads[&letter.id];
        let details = format!("taken back: its key waits for letter {head}, which is dead");
        store
            .record(connection, &action(run, letter, "leave", details))
            .await?;
    }
    Ok(taken_back)
}

/// Puts the run's next letters on their way; returns how many went.
async fn move_letters<S: Store>(
    store: &S,
    connection: &mut ConnectionOf<S>,
    run: &ReplayRun,
    limit: usize,
) -> Result<usize, StoreError> {
    let next = store.next_letters(connection, run.id, limit).await?;
    let found = store.lock_letters(connection, &next).await?;
    let found: HashMap<LetterId, DeadLetter> =
        found.into_iter().map(|found| (found.id, found)).collect();
    let waiting = store.waiting_for(connection, &next).await?;
    let waiting: HashSet<LetterId> = waiting.into_iter().map(|(letter, _)| letter).collect();
    let mut moved = Vec::with_capacity(next.len());
    let mut left = Vec::new();
    for id in next {
        // One whose retention has ended is not found.
        let dead = |letter: &&DeadLetter| letter.state == LetterState::Dead;
        let Some(letter) = found.get(&id).filter(dead) else {
            left.push(id);
            continue;
        };
        if waiting.contains(&id) {
            // What it waited for may have gone in this very step.
            let still = store.waiting_for(connection, &[id]).await?;
            if let Some((_, head)) = still.first() {
                left.push(id);
                let details =
                    format!("its key waits for letter {head}, which this run does not move");
                store
                    .record(connection, &action(run, letter, "leave", details))
                    .await?;
                continue;
            }
        }
        match readmit(store, connection, letter).await? {
            Readmission::Admitted(admitted) => {
                moved.push(letter.id);
                let details = admitted.in_words();
                store
                    .record(connection, &action(run, letter, "replay", details))
                    .await?;
            }
            Readmission::Refused(reason) => {
                left.push(letter.id);
                store
                    .record(connection, &action(run, letter, "leave", reason))
                    .await?;
            }
        }
    }
    let changed = store
        .change_letters(connection, &moved, LetterChange::Replay)
        .await?;
    assert_eq!(
        changed.len(),
        moved.len(),
        "letters that are locked stay in their state"
    );
    store
        .mark_letters(connection, run.id, &moved, &left)
        .await?;
    Ok(moved.len())
}

fn action(run: &ReplayRun, letter: &DeadLetter, action: &str, details: String) -> NewAction {
    NewAction {
        who: run.who.clone(),
        action: action.to_owned(),
        reason: run.reason.clone(),
        letter: Some(letter.id),
        run: Some(run.id),
        details,
    }
}

async fn end<S: Store>(
    store: &S,
    connection: &mut ConnectionOf<S>,
    run: &ReplayRun,
    state: RunState,
) -> Result<(), StoreError> {
    let changed = store
        .change_run(connection, run.id, &[RunState::Running], state)
        .await?;
    assert!(changed, "a run that is locked goes on running");
    tracing::info!(run = run.id.0, state = state.as_str(), "replay run ended");
    Ok(())
}
