//! Replay runs: a selection of dead letters, replayed step by step.

use std::time::Duration;

use posta::message::Envelope;
use posta::store::{
    DeadLetterStore, LetterChange, LetterFilter, LetterId, LetterState, NewDeadLetter,
    NewReplayRun, Origin, ReplayRun, ReplayStore, RetryStore, RunCounts, RunId, RunState, Store,
    StoreErrorKind,
};

pub(super) use super::given::fresh as start;
use super::given::{LONG, Place, keyed, keyless, odd_errors, successor};
use super::letters::{any, consumer, dead};
use crate::harness::database::TestDatabase;

pub(super) async fn a_run_is_of_the_letters_that_are_dead_when_it_begins<D: TestDatabase>(
    place: &Place<D>,
) {
    let ids = buried(place, 5).await;
    place.change(&ids[1..2], LetterChange::Replay).await;
    place.change(&ids[2..3], LetterChange::Discard).await;
    // Whatever states the filter names.
    let (run, letters) = begin(place, &any(), &new()).await;
    assert_eq!(letters, 3);
    let later = buried(place, 2).await;
    place.change(&ids[2..3], LetterChange::Restore).await;
    assert_eq!(waiting(place, run).await, [ids[0], ids[3], ids[4]]);
    let (second, letters) = begin(place, &any(), &new()).await;
    assert_eq!(letters, 6);
    assert_eq!(
        waiting(place, second).await,
        [ids[0], ids[2], ids[3], ids[4], later[0], later[1]]
    );
}

pub(super) async fn a_run_takes_only_what_its_filter_chooses<D: TestDatabase>(place: &Place<D>) {
    let ids = buried(place, 3).await;
    let mut other = dead(&keyless(b""));
    other.origin = consumer("other");
    let other = place.bury(&[other]).await;
    let filter = LetterFilter {
        origin: Some(consumer("other")),
        error_contains: Some("broke".to_owned()),
        ..LetterFilter::default()
    };
    let (run, letters) = begin(place, &filter, &new()).await;
    assert_eq!((letters, waiting(place, run).await), (1, other));
    let filter = LetterFilter {
        ids: vec![ids[2], ids[0], LetterId(i64::MAX)],
        ..LetterFilter::default()
    };
    let (run, letters) = begin(place, &filter, &new()).await;
    assert_eq!(
        (letters, waiting(place, run).await),
        (2, vec![ids[0], ids[2]])
    );
    let nothing = LetterFilter {
        reason: Some("none".to_owned()),
        ..LetterFilter::default()
    };
    let (run, letters) = begin(place, &nothing, &new()).await;
    assert_eq!((letters, waiting(place, run).await), (0, vec![]));
    assert_eq!(read(place, run).await.state, RunState::Running);
}

pub(super) async fn a_run_reads_as_it_was_begun<D: TestDatabase>(place: &Place<D>) {
    buried(place, 2).await;
    for (text, stored) in odd_errors() {
        let new = NewReplayRun {
            who: text.clone(),
            reason: text.clone(),
            selection: text.clone(),
            rate: Some(u32::from(u16::MAX)),
            failures_max: Some(3),
        };
        let (id, _) = begin(place, &any(), &new).await;
        let run = read(place, id).await;
        assert_eq!(
            (&run.who, &run.reason, &run.selection),
            (&stored, &stored, &stored)
        );
        assert_eq!((run.rate, run.failures_max), (new.rate, new.failures_max));
        assert_eq!((run.state, run.ended_at), (RunState::Running, None));
        assert_eq!(
            run.counts,
            RunCounts {
                waiting: 2,
                ..RunCounts::default()
            }
        );
    }
    let (id, _) = begin(place, &any(), &new()).await;
    let run = read(place, id).await;
    assert_eq!((run.rate, run.failures_max), (None, None));
}

pub(super) async fn the_newest_runs_come_first<D: TestDatabase>(place: &Place<D>) {
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(begin(place, &any(), &new()).await.0);
    }
    ids.reverse();
    let read = async |only, limit| {
        let runs = place
            .done(async |store, session| store.runs(session, only, limit).await)
            .await;
        runs.into_iter().map(|run| run.id).collect::<Vec<_>>()
    };
    assert_eq!(read(None, 10).await, ids);
    assert_eq!(read(None, 2).await, ids[..2]);
    assert_eq!(read(Some(ids[3]), 10).await, ids[3..]);
    assert_eq!(read(Some(RunId(i64::MAX)), 10).await, []);
}

pub(super) async fn a_runs_letters_are_taken_in_its_order_and_settled<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let envelopes: Vec<Envelope> = (0..6).map(|_| keyless(b"")).collect();
    let new_letters: Vec<NewDeadLetter> = envelopes.iter().map(dead).collect();
    let ids = place.bury(&new_letters).await;
    let (run, _) = begin(place, &any(), &new()).await;
    let next = place
        .done(async |store, session| store.next_letters(session, run, 4).await)
        .await;
    assert_eq!(next, ids[..4]);
    mark(place, run, &ids[..3], &ids[3..4]).await;
    for (id, envelope) in ids[..3].iter().zip(&envelopes) {
        assert!(place.readmit_held(*id, envelope).await);
    }
    assert_eq!(waiting(place, run).await, ids[4..]);
    let counts = RunCounts {
        waiting: 2,
        replaying: 3,
        left: 1,
        ..RunCounts::default()
    };
    assert_eq!(read(place, run).await.counts, counts);
    // Nothing has become of them yet.
    settle(place, run).await;
    assert_eq!(read(place, run).await.counts, counts);
    // The first gets through; the second dies again.
    let due = place.due_rows().await;
    place.release(&fence, &[due[0].position]).await;
    place
        .done(async |store, session| {
            store
                .release(session, "c", &fence, &[due[1].position])
                .await?;
            let again = NewDeadLetter {
                again: Some(ids[1]),
                ..dead(&envelopes[1])
            };
            store.bury(session, &[again]).await
        })
        .await;
    settle(place, run).await;
    let counts = RunCounts {
        waiting: 2,
        replaying: 1,
        replayed: 1,
        failed: 1,
        left: 1,
    };
    assert_eq!(read(place, run).await.counts, counts);
    // What was settled stays so, whatever becomes of the letter.
    place.change(&ids[1..2], LetterChange::Replay).await;
    settle(place, run).await;
    assert_eq!(read(place, run).await.counts, counts);
}

pub(super) async fn a_letter_that_died_again_and_was_dropped_has_failed<D: TestDatabase>(
    place: &Place<D>,
) {
    let ids = buried(place, 1).await;
    let (run, _) = begin(place, &any(), &new()).await;
    mark(place, run, &ids, &[]).await;
    place.change(&ids, LetterChange::Replay).await;
    let again = NewDeadLetter {
        again: Some(ids[0]),
        ..dead(&keyless(b""))
    };
    place.bury(&[again]).await;
    place.change(&ids, LetterChange::Discard).await;
    settle(place, run).await;
    assert_eq!(read(place, run).await.counts.failed, 1);
}

pub(super) async fn letters_that_do_not_wait_are_not_marked<D: TestDatabase>(place: &Place<D>) {
    let ids = buried(place, 3).await;
    let (run, _) = begin(place, &any(), &new()).await;
    let (other, _) = begin(place, &any(), &new()).await;
    mark(place, run, &ids[..1], &ids[1..2]).await;
    mark(place, run, &ids[1..2], &ids[..1]).await;
    mark(place, run, &[LetterId(i64::MAX)], &[]).await;
    let counts = read(place, run).await.counts;
    assert_eq!((counts.waiting, counts.replaying, counts.left), (1, 1, 1));
    assert_eq!(read(place, other).await.counts.waiting, 3);
}

pub(super) async fn a_runs_state_changes_from_those_given_only<D: TestDatabase>(place: &Place<D>) {
    buried(place, 1).await;
    let (run, _) = begin(place, &any(), &new()).await;
    use RunState::{Cancelled, Finished, Paused, Running, Stopped};
    for (from, to, changes) in [
        (&[Paused][..], Running, false),
        (&[Running], Paused, true),
        (&[Running], Paused, false),
        (&[Paused, Stopped], Running, true),
        (&[Running], Stopped, true),
        (&[], Running, false),
        (&[Running, Paused, Stopped], Cancelled, true),
        (&[Running, Paused, Stopped], Running, false),
    ] {
        let before = read(place, run).await.state;
        assert_eq!(
            change(place, run, from, to).await,
            changes,
            "{from:?} {to:?}"
        );
        let after = read(place, run).await;
        assert_eq!(after.state, if changes { to } else { before });
        assert_eq!(after.ended_at.is_some(), after.state == Cancelled);
    }
    let (finished, _) = begin(place, &any(), &new()).await;
    assert!(change(place, finished, &[Running], Finished).await);
    assert!(read(place, finished).await.ended_at.is_some());
    assert!(!change(place, RunId(i64::MAX), &[Running], Paused).await);
}

pub(super) async fn only_a_running_run_that_is_due_is_taken<D: TestDatabase>(place: &Place<D>) {
    assert_eq!(take(place).await, None);
    assert_eq!(next_step(place).await, None);
    buried(place, 1).await;
    let (first, _) = begin(place, &any(), &new()).await;
    let (second, _) = begin(place, &any(), &new()).await;
    assert_eq!(take(place).await, Some(first));
    assert_eq!(next_step(place).await, Some(Duration::ZERO));
    pace(place, first, LONG * 2).await;
    assert_eq!(take(place).await, Some(second));
    pace(place, second, LONG).await;
    assert_eq!(take(place).await, None);
    let due = next_step(place).await.expect("two run");
    assert!(due <= LONG && due > LONG - Duration::from_secs(300));
    pace(place, second, Duration::ZERO).await;
    assert_eq!(take(place).await, Some(second));
    for (from, to) in [
        (RunState::Running, RunState::Paused),
        (RunState::Paused, RunState::Stopped),
        (RunState::Stopped, RunState::Cancelled),
    ] {
        assert!(change(place, second, &[from], to).await);
        assert_eq!(take(place).await, None, "{to:?}");
        let due = next_step(place).await.expect("the first still runs");
        assert!(due > LONG);
    }
}

/// Of many processes one takes the step: the rate is the run's, not each one's.
pub(super) async fn a_run_that_is_taken_is_not_taken_by_others<D: TestDatabase>(place: &Place<D>) {
    buried(place, 1).await;
    let (run, _) = begin(place, &any(), &new()).await;
    let mut first = place.begin().await;
    let taken = place.store.take_run(&mut first).await.unwrap();
    assert_eq!(taken.map(|run| run.id), Some(run));
    let other = place.another().await;
    let second = async {
        let mut session = other.begin().await.unwrap();
        let taken = other.take_run(&mut session).await.unwrap();
        session.commit().await.unwrap();
        taken.map(|run| run.id)
    };
    if D::CONCURRENT_WRITERS {
        // It does not even wait.
        assert_eq!(second.await, None);
        first.rollback().await;
    } else {
        let step = async {
            place.store.pace_run(&mut first, run, LONG).await.unwrap();
            first.commit().await.unwrap();
        };
        let (taken, ()) = tokio::join!(second, step);
        assert_eq!(taken, None);
        pace(place, run, Duration::ZERO).await;
    }
    assert_eq!(take(place).await, Some(run));
}

pub(super) async fn a_step_that_is_rolled_back_never_was<D: TestDatabase>(place: &Place<D>) {
    let envelope = keyless(b"");
    let ids = place.bury(&[dead(&envelope)]).await;
    let (run, _) = begin(place, &any(), &new()).await;
    let mut session = place.begin().await;
    let store = &place.store;
    store
        .take_run(&mut session)
        .await
        .unwrap()
        .expect("it runs");
    store
        .change_letters(&mut session, &ids, LetterChange::Replay)
        .await
        .unwrap();
    let slot = envelope.slot();
    store
        .readmit_held(&mut session, "c", ids[0], slot, &envelope)
        .await
        .unwrap();
    store
        .mark_letters(&mut session, run, &ids, &[])
        .await
        .unwrap();
    store.pace_run(&mut session, run, LONG).await.unwrap();
    session.rollback().await;
    assert_eq!(place.letter(ids[0]).await.state, LetterState::Dead);
    assert_eq!(waiting(place, run).await, ids);
    assert_eq!(take(place).await, Some(run));
    assert!(place.due_rows().await.is_empty());
}

pub(super) async fn a_rate_or_a_limit_of_nothing_is_refused<D: TestDatabase>(place: &Place<D>) {
    for (rate, failures_max) in [(Some(0), None), (None, Some(0))] {
        let new = NewReplayRun {
            rate,
            failures_max,
            ..new()
        };
        let mut session = place.begin().await;
        let refused = place.store.begin_run(&mut session, &any(), &new).await;
        session.rollback().await;
        assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Rejected);
    }
}

pub(super) async fn a_keys_place_comes_before_its_letters_that_have_none<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let lanes = place.own_lanes().await;
    let plain = place
        .bury(&[dead(&keyed("a", b"")), dead(&keyed("b", b""))])
        .await;
    // The second message of the key was set aside before the first.
    let (first, second) = (keyed("a", b"1"), keyed("a", b"2"));
    place
        .hold("c", &[successor(&first), successor(&second)])
        .await;
    let behind = place.park(&fence, &second).await.1;
    let head = place.park(&fence, &first).await.1;
    let row = keyed("a", b"3");
    place.enqueue(std::slice::from_ref(&row)).await;
    let id = place.pending().await[0].id;
    let in_outbox = place.park_row(&lanes, id, &row).await;
    let last = buried(place, 1).await;
    let (run, letters) = begin(place, &any(), &new()).await;
    assert_eq!(letters, 6);
    let found = waiting(place, run).await;
    let at = |letter| found.iter().position(|found| *found == letter);
    assert!(at(head) < at(behind), "{found:?}");
    assert!(at(in_outbox) < Some(3), "{found:?}");
    assert_eq!(found[3..], [plain[0], plain[1], last[0]]);
}

pub(super) async fn what_became_of_letters_is_told_without_writing_it_down<D: TestDatabase>(
    place: &Place<D>,
) {
    let ids = buried(place, 3).await;
    let (run, _) = begin(place, &any(), &new()).await;
    mark(place, run, &ids, &[]).await;
    place.change(&ids[..2], LetterChange::Replay).await;
    place.change(&ids[1..2], LetterChange::Recall).await;
    let unsettled = async || {
        place
            .done(async |store, session| store.unsettled(session, run).await)
            .await
    };
    let expected = RunCounts {
        failed: 2,
        ..RunCounts::default()
    };
    // The second died again; the third never went.
    assert_eq!(unsettled().await, expected);
    assert_eq!(unsettled().await, expected);
    assert_eq!(read(place, run).await.counts.replaying, 3);
    settle(place, run).await;
    let counts = read(place, run).await.counts;
    assert_eq!((counts.replaying, counts.failed), (1, 2));
    assert_eq!(unsettled().await, RunCounts::default());
}

pub(super) async fn a_letter_that_was_recalled_is_left_out<D: TestDatabase>(place: &Place<D>) {
    let ids = buried(place, 2).await;
    let (run, _) = begin(place, &any(), &new()).await;
    let (other, _) = begin(place, &any(), &new()).await;
    mark(place, run, &ids[..1], &[]).await;
    let on_their_way = async || {
        place
            .done(async |store, session| store.letters_on_their_way(session, run).await)
            .await
    };
    assert_eq!(on_their_way().await, ids[..1]);
    for letter in &ids {
        place
            .done(async |store, session| store.leave_recalled(session, *letter).await)
            .await;
    }
    assert!(on_their_way().await.is_empty());
    let counts = read(place, run).await.counts;
    assert_eq!((counts.waiting, counts.replaying, counts.left), (1, 0, 1));
    // Where it still waits its turn comes.
    assert_eq!(read(place, other).await.counts.waiting, 2);
}

pub(super) async fn letters_that_wait_for_another_are_told_with_it<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let (first, second) = (keyed("a", b"1"), keyed("a", b"2"));
    place
        .hold("c", &[successor(&first), successor(&second)])
        .await;
    let behind = place.park(&fence, &second).await.1;
    let late = keyed("a", b"late");
    let mut others = vec![dead(&late), dead(&keyed("b", b"")), dead(&keyless(b""))];
    // The same key elsewhere is another one.
    others.push(NewDeadLetter {
        origin: consumer("other"),
        ..dead(&keyed("a", b""))
    });
    let ids = place.bury(&others).await;
    let mut all = ids.clone();
    all.push(behind);
    // The key's first is on its way: everything moves.
    assert_eq!(waiting_for(place, &all).await, []);
    let head = place.park(&fence, &first).await.1;
    all.push(head);
    let found = waiting_for(place, &all).await;
    assert_eq!(found, [(behind, head), (ids[0], head)]);
    assert_eq!(waiting_for(place, &ids[1..]).await, []);
    // On its way it waits too.
    assert!(place.readmit_held(ids[0], &late).await);
    assert_eq!(waiting_for(place, &ids).await, [(ids[0], head)]);
    assert!(place.readmit_held(head, &first).await);
    assert_eq!(waiting_for(place, &all).await, []);
    let due = place.due_rows().await;
    place.release(&fence, &[due[0].position]).await;
    assert_eq!(waiting_for(place, &ids).await, [(ids[0], behind)]);
}

pub(super) async fn rows_that_wait_for_a_letter_are_told_with_it<D: TestDatabase>(
    place: &Place<D>,
) {
    let lanes = place.own_lanes().await;
    let of_dispatch = |envelope: &Envelope| NewDeadLetter {
        origin: Origin::Dispatch,
        ..dead(envelope)
    };
    let (first, second, late) = (keyed("a", b"1"), keyed("a", b"2"), keyed("a", b"3"));
    place.enqueue(&[first.clone(), second.clone()]).await;
    let rows = place.pending().await;
    let letters = [of_dispatch(&late), of_dispatch(&keyed("b", b""))];
    let ids = place.bury(&letters).await;
    let second = place.park_row(&lanes, rows[1].id, &second).await;
    let head = place.park_row(&lanes, rows[0].id, &first).await;
    let all = [ids[0], ids[1], second, head];
    let found = waiting_for(place, &all).await;
    assert_eq!(found, [(ids[0], head), (second, head)]);
    assert!(place.readmit(ids[0], &late).await);
    assert_eq!(waiting_for(place, &all).await, found);
    // The first goes out: it does not wait for what is behind it.
    assert!(place.readmit(head, &first).await);
    assert_eq!(waiting_for(place, &all).await, [(ids[0], second)]);
}

async fn waiting_for<D: TestDatabase>(
    place: &Place<D>,
    letters: &[LetterId],
) -> Vec<(LetterId, LetterId)> {
    place
        .done(async |store, session| store.waiting_for(session, letters).await)
        .await
}

fn new() -> NewReplayRun {
    NewReplayRun {
        who: "ada".to_owned(),
        reason: "mended".to_owned(),
        selection: "all".to_owned(),
        rate: None,
        failures_max: None,
    }
}

async fn buried<D: TestDatabase>(place: &Place<D>, count: usize) -> Vec<LetterId> {
    let letters: Vec<NewDeadLetter> = (0..count).map(|_| dead(&keyless(b""))).collect();
    place.bury(&letters).await
}

async fn begin<D: TestDatabase>(
    place: &Place<D>,
    filter: &LetterFilter,
    new: &NewReplayRun,
) -> (RunId, u64) {
    place
        .done(async |store, session| store.begin_run(session, filter, new).await)
        .await
}

async fn read<D: TestDatabase>(place: &Place<D>, run: RunId) -> ReplayRun {
    let mut runs = place
        .done(async |store, session| store.runs(session, Some(run), 1).await)
        .await;
    assert_eq!(runs.len(), 1);
    runs.remove(0)
}

async fn waiting<D: TestDatabase>(place: &Place<D>, run: RunId) -> Vec<LetterId> {
    place
        .done(async |store, session| store.next_letters(session, run, 1000).await)
        .await
}

async fn mark<D: TestDatabase>(
    place: &Place<D>,
    run: RunId,
    replaying: &[LetterId],
    left: &[LetterId],
) {
    place
        .done(async |store, session| store.mark_letters(session, run, replaying, left).await)
        .await;
}

async fn settle<D: TestDatabase>(place: &Place<D>, run: RunId) {
    place
        .done(async |store, session| store.settle_run(session, run).await)
        .await;
}

async fn change<D: TestDatabase>(
    place: &Place<D>,
    run: RunId,
    from: &[RunState],
    to: RunState,
) -> bool {
    place
        .done(async |store, session| store.change_run(session, run, from, to).await)
        .await
}

async fn take<D: TestDatabase>(place: &Place<D>) -> Option<RunId> {
    let run = place
        .done(async |store, session| store.take_run(session).await)
        .await;
    run.map(|run| run.id)
}

async fn pace<D: TestDatabase>(place: &Place<D>, run: RunId, pause: Duration) {
    place
        .done(async |store, session| store.pace_run(session, run, pause).await)
        .await;
}

async fn next_step<D: TestDatabase>(place: &Place<D>) -> Option<Duration> {
    place
        .done(async |store, session| store.next_step(session).await)
        .await
}
