//! What supervisors and the root do with children that end, fail, or block their thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tokio::sync::watch;

use super::{Budget, ChildError, ChildState, ChildStatus, Life, Pace, PastBudget, Phase};
use super::{Place, Registry, Tree};
use crate::retry::Backoff;

const PATIENCE: Duration = Duration::from_secs(30);
const MINUTE: Duration = Duration::from_secs(60);

/// Quick, with budgets that nobody spends; an arbiter is blocked after half a second.
fn pace() -> Pace {
    let plenty = Budget::new(1_000, MINUTE);
    Pace {
        backoff: Backoff::new(Duration::from_millis(5), Duration::from_millis(20)),
        stable_after: Duration::from_millis(300),
        end_patience: Duration::from_millis(300),
        ..Pace::new(plenty, plenty, Duration::from_millis(500))
    }
}

fn tree(pace: Pace) -> Tree {
    Tree::new(2, pace, PastBudget::StayUnhealthy)
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "in vain waited until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn status(registry: &Registry, name: &str) -> ChildStatus {
    registry.child(name).expect("a child")
}

async fn drained(tree: &Tree) {
    Phase::Drain.advance(&tree.phase);
    tokio::time::timeout(PATIENCE, tree.drained())
        .await
        .expect("a drain");
    tree.arbiters.stop();
}

/// Runs until it is told to drain.
async fn obedient(life: Life) -> Result<(), ChildError> {
    life.draining().await;
    Ok(())
}

/// A body that does `what` at its first starts, given how many there were, and then runs; signals
/// when it is past them.
fn fails_at_first(
    failures: u32,
    what: fn(u32) -> Result<(), ChildError>,
) -> (
    impl Fn(Life) -> LocalBoxFuture<'static, Result<(), ChildError>>,
    watch::Receiver<bool>,
) {
    let starts = Arc::new(AtomicU32::new(0));
    let (past, is_past) = watch::channel(false);
    let past = Arc::new(past);
    let body = move |life: Life| {
        let (starts, past) = (starts.clone(), past.clone());
        async move {
            let start = starts.fetch_add(1, Ordering::SeqCst);
            if start < failures {
                tokio::task::yield_now().await;
                return what(start);
            }
            past.send_replace(true);
            life.draining().await;
            Ok(())
        }
        .boxed_local()
    };
    (body, is_past)
}

async fn soon(mut signal: watch::Receiver<bool>) {
    let wait = signal.wait_for(|signal| *signal);
    tokio::time::timeout(PATIENCE, wait)
        .await
        .expect("in time")
        .expect("a signal");
}

#[actix_rt::test]
async fn a_panic_is_counted_and_the_child_is_started_again() {
    let tree = tree(pace());
    let (body, past) = fails_at_first(2, |_| panic!("told to panic"));
    let concern = tree.concern("test", || async {});
    concern.start("victim", Place::Spread, body);
    soon(past).await;
    let victim = status(&tree.registry, "victim");
    assert_eq!((victim.state, victim.restarts), (ChildState::Running, 2));
    assert_eq!(victim.panics, 2);
    let (error, _) = victim.last_error.expect("the last error");
    assert!(error.starts_with("panicked: told to panic (at "), "{error}");
    let panic = victim.last_panic.expect("the last panic");
    assert!(panic.place.unwrap().contains("supervision/tests.rs"));
    drained(&tree).await;
    let victim = status(&tree.registry, "victim");
    assert_eq!(victim.state, ChildState::Drained);
}

#[actix_rt::test]
async fn a_panic_before_the_first_await_is_caught_too() {
    let tree = tree(pace());
    let starts = Arc::new(AtomicU32::new(0));
    let (past, is_past) = watch::channel(false);
    let past = Arc::new(past);
    let concern = tree.concern("test", || async {});
    concern.start("victim", Place::Spread, move |life: Life| {
        assert!(
            starts.fetch_add(1, Ordering::SeqCst) > 0,
            "told to panic at once"
        );
        let past = past.clone();
        async move {
            past.send_replace(true);
            life.draining().await;
            Ok(())
        }
    });
    soon(is_past).await;
    drained(&tree).await;
}

#[actix_rt::test]
async fn an_error_and_an_early_end_are_failures_and_do_not_touch_the_siblings() {
    let tree = tree(pace());
    let concern = tree.concern("test", || async {});
    let (sibling, sibling_runs) = fails_at_first(0, |_| Ok(()));
    concern.start("sibling", Place::Spread, sibling);
    let (failing, past_errors) = fails_at_first(1, |_| Err("no broker".into()));
    concern.start("failing", Place::Spread, failing);
    let (ending, past_ends) = fails_at_first(1, |_| Ok(()));
    concern.start("ending", Place::Inner, ending);
    soon(sibling_runs).await;
    soon(past_errors).await;
    soon(past_ends).await;
    assert_eq!(status(&tree.registry, "sibling").restarts, 0);
    assert_eq!(status(&tree.registry, "failing").restarts, 1);
    let ended = status(&tree.registry, "ending");
    assert_eq!(ended.restarts, 1);
    let (error, _) = ended.last_error.expect("why");
    assert_eq!(error, "ended before it was told to");
    drained(&tree).await;
}

#[actix_rt::test]
async fn a_child_that_waits_for_its_restart_does_not_hold_up_a_drain() {
    let tree = tree(pace());
    let (body, _) = fails_at_first(u32::MAX, |_| Err("for ever".into()));
    let concern = tree.concern("test", || async {});
    concern.start("victim", Place::Spread, body);
    let registry = tree.registry.clone();
    until("it has failed", move || {
        registry.child("victim").is_some_and(|it| it.restarts >= 3)
    })
    .await;
    drained(&tree).await;
}

#[actix_rt::test]
async fn children_come_late_and_go_early_and_nobody_is_started_twice() {
    let tree = tree(pace());
    let concern = tree.concern("test", || async {});
    concern.start("first", Place::Spread, obedient);
    let registry = tree.registry.clone();
    until("the first runs", || registry.child("first").is_some()).await;
    concern.start("second", Place::Spread, obedient);
    concern.start("first", Place::Spread, |_| async { panic!("twice") });
    until("the second runs", || registry.child("second").is_some()).await;
    concern.finish("first");
    until("the first is gone", || registry.child("first").is_none()).await;
    concern.start("first", Place::Spread, obedient);
    until("it is there again", || registry.child("first").is_some()).await;
    assert_eq!(status(&registry, "first").restarts, 0);
    drained(&tree).await;
    concern.start("late", Place::Spread, |_| async { panic!("in a drain") });
    drained(&tree).await;
}

struct Held(Arc<AtomicU32>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[actix_rt::test]
async fn a_restart_from_outside_drops_the_body_and_counts_as_a_failure() {
    let tree = tree(pace());
    let concern = tree.concern("test", || async {});
    let dropped = Arc::new(AtomicU32::new(0));
    let held = dropped.clone();
    concern.start("victim", Place::Spread, move |life| {
        let held = Held(held.clone());
        async move {
            let _held = held;
            life.draining().await;
            // It does not obey.
            std::future::pending::<Result<(), ChildError>>().await
        }
    });
    let registry = tree.registry.clone();
    until("it runs", || registry.child("victim").is_some()).await;
    concern.restart("victim", "it makes no progress".to_owned());
    until("it was started again", || {
        let it = status(&registry, "victim");
        (it.restarts, it.state) == (1, ChildState::Running)
    })
    .await;
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    let (error, _) = status(&registry, "victim").last_error.expect("why");
    assert_eq!(error, "it makes no progress");
    Phase::Abort.advance(&tree.phase);
    drained(&tree).await;
}

/// A tree whose concern "test" has a well-behaved child, and one that fails until it is told not to.
struct Failing {
    tree: Tree,
    healed: Arc<AtomicBool>,
    forgotten: Arc<AtomicU32>,
}

fn failing(pace: Pace, past_budget: PastBudget) -> Failing {
    let tree = Tree::new(2, pace, past_budget);
    let (healed, forgotten) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
    let count = forgotten.clone();
    let concern = tree.concern("test", move || {
        let count = count.clone();
        async move {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    concern.start("sibling", Place::Spread, obedient);
    let heal = healed.clone();
    concern.start("victim", Place::Spread, move |life| {
        let heal = heal.clone();
        async move {
            if !heal.load(Ordering::SeqCst) {
                return Err("broken".into());
            }
            obedient(life).await
        }
    });
    let other = tree.concern("other", || async {});
    other.start("stranger", Place::Spread, obedient);
    Failing {
        tree,
        healed,
        forgotten,
    }
}

fn concern_status(tree: &Tree, name: &str) -> super::ConcernStatus {
    let concerns = tree.registry.concerns();
    let found = concerns.into_iter().find(|(concern, _)| concern == name);
    found.expect("a concern").1
}

#[actix_rt::test]
async fn past_its_budget_a_concern_is_rebuilt_whole_and_what_it_shares_is_forgotten() {
    let pace = Pace {
        restarts: Budget::new(3, MINUTE),
        ..pace()
    };
    let Failing {
        tree,
        healed,
        forgotten,
    } = failing(pace, PastBudget::StayUnhealthy);
    until("it was rebuilt", || forgotten.load(Ordering::SeqCst) > 0).await;
    healed.store(true, Ordering::SeqCst);
    until("it is well", || tree.registry.is_healthy()).await;
    assert!(concern_status(&tree, "test").rebuilds > 0);
    assert!(status(&tree.registry, "victim").restarts >= 4);
    let sibling = status(&tree.registry, "sibling");
    assert_eq!(sibling.last_error.expect("why").0, "its concern is rebuilt");
    assert_eq!(status(&tree.registry, "stranger").restarts, 0);
    assert_eq!(concern_status(&tree, "other").rebuilds, 0);
    drained(&tree).await;
}

#[actix_rt::test]
async fn past_the_roots_budget_it_has_failed_goes_on_and_recovers_after_a_stable_run() {
    let pace = Pace {
        restarts: Budget::new(1, MINUTE),
        rebuilds: Budget::new(1, MINUTE),
        ..pace()
    };
    let Failing { tree, healed, .. } = failing(pace, PastBudget::StayUnhealthy);
    let failed = |tree: &Tree| concern_status(tree, "test").failed;
    until("it has failed", || failed(&tree).is_some()).await;
    assert_eq!(failed(&tree).as_deref(), Some("victim: broken"));
    assert!(!tree.registry.is_healthy() && tree.ending.borrow().is_none());
    let rebuilds = concern_status(&tree, "test").rebuilds;
    until("it goes on", || {
        concern_status(&tree, "test").rebuilds > rebuilds + 1
    })
    .await;
    healed.store(true, Ordering::SeqCst);
    until("it has recovered", || failed(&tree).is_none()).await;
    until("it is well", || tree.registry.is_healthy()).await;
    drained(&tree).await;
}

#[actix_rt::test]
async fn past_the_roots_budget_it_drains_and_ends_if_so_configured() {
    let pace = Pace {
        restarts: Budget::new(1, MINUTE),
        rebuilds: Budget::new(0, MINUTE),
        ..pace()
    };
    let Failing { tree, .. } = failing(pace, PastBudget::Exit);
    let mut ending = tree.ending.clone();
    let ends = ending.wait_for(Option::is_some);
    let reason = tokio::time::timeout(PATIENCE, ends).await.expect("an end");
    let reason = reason.expect("a root").clone();
    assert_eq!(reason.as_deref(), Some("test: victim: broken"));
    assert_eq!(*tree.phase.borrow(), Phase::Drain);
    drained(&tree).await;
    let children = tree.registry.children();
    let drained = |(_, it): &(String, ChildStatus)| it.state == ChildState::Drained;
    assert!(children.iter().all(drained), "{children:?}");
}

#[actix_rt::test]
async fn what_blocks_its_thread_is_found_and_everything_else_there_goes_on_elsewhere() {
    let tree = Tree::new(1, pace(), PastBudget::StayUnhealthy);
    let concern = tree.concern("test", || async {});
    let (let_go, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(std::sync::Mutex::new(blocked));
    let (starts, dropped) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (count, held) = (starts.clone(), dropped.clone());
    let (sibling, sibling_runs) = fails_at_first(0, |_| Ok(()));
    concern.start("sibling", Place::Spread, sibling);
    soon(sibling_runs).await;
    concern.start("blocker", Place::Spread, move |life| {
        let (first, blocked) = (count.fetch_add(1, Ordering::SeqCst) == 0, blocked.clone());
        let held = Held(held.clone());
        async move {
            let _held = held;
            if first {
                // Never yields.
                let _ = blocked.lock().unwrap().recv();
            }
            obedient(life).await
        }
    });
    until("both run elsewhere", || {
        ["blocker", "sibling"].iter().all(|name| {
            let it = tree.registry.child(name);
            it.is_some_and(|it| it.restarts == 1 && it.state == ChildState::Running)
        })
    })
    .await;
    let (error, _) = status(&tree.registry, "blocker").last_error.expect("why");
    assert_eq!(error, "it does not yield: its arbiter is blocked");
    assert!(status(&tree.registry, "sibling").last_error.is_none());
    let blocked = tree.arbiters.blocked();
    assert_eq!(blocked.len(), 1);
    assert_eq!(blocked[0].child.as_deref(), Some("blocker"));
    assert_eq!(dropped.load(Ordering::SeqCst), 0, "it cannot be dropped");
    let_go.send(()).expect("it waits");
    until("its thread is back and ended", || {
        tree.arbiters.blocked().is_empty() && dropped.load(Ordering::SeqCst) == 1
    })
    .await;
    drained(&tree).await;
}
