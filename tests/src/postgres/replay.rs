use std::time::Duration;

use posta::store::{
    DeadLetterStore, LetterFilter, NewReplayRun, Origin, ReplayStore, RunState, Store,
};

use super::{dead, keyed};
use crate::harness::postgres::migrated;

/// More processes do not step a run more often.
#[tokio::test]
async fn a_run_is_taken_by_one_process_at_a_time() {
    let (_guard, store) = migrated().await;
    let mut session = store.begin().await.unwrap();
    let letters: Vec<_> = (0..3)
        .map(|n| dead(Origin::Dispatch, &keyed(&format!("k{n}"), ""), false))
        .collect();
    store.bury(&mut session, &letters).await.unwrap();
    let run = NewReplayRun {
        who: "ann".to_owned(),
        reason: "the fix is out".to_owned(),
        selection: "all".to_owned(),
        rate: Some(10),
        failures_max: None,
    };
    let filter = LetterFilter::default();
    let (run, count) = store.begin_run(&mut session, &filter, &run).await.unwrap();
    assert_eq!(count, 3);
    session.commit().await.unwrap();

    let mut one = store.begin().await.unwrap();
    let taken = store.take_run(&mut one).await.unwrap().unwrap();
    assert_eq!((taken.id, taken.counts.waiting), (run, 3));
    let mut other = store.begin().await.unwrap();
    assert!(store.take_run(&mut other).await.unwrap().is_none());
    other.rollback().await;
    let next = store.next_letters(&mut one, run, 2).await.unwrap();
    store
        .mark_letters(&mut one, run, &next[..1], &next[1..])
        .await
        .unwrap();
    let pause = Duration::from_secs(3600);
    store.pace_run(&mut one, run, pause).await.unwrap();
    one.commit().await.unwrap();

    let mut other = store.begin().await.unwrap();
    assert!(store.take_run(&mut other).await.unwrap().is_none(), "paced");
    let next = store.next_step(&mut other).await.unwrap();
    assert!(next > Some(pause / 2), "{next:?}");
    let counts = store.runs(&mut other, Some(run), 1).await.unwrap()[0].counts;
    assert_eq!((counts.waiting, counts.replaying, counts.left), (1, 1, 1));
    let paused = store.change_run(&mut other, run, &[RunState::Running], RunState::Paused);
    assert!(paused.await.unwrap());
    assert_eq!(store.next_step(&mut other).await.unwrap(), None);
    other.rollback().await;
}
