//! What a supervisor does with children that end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use actix::prelude::*;
use futures_util::FutureExt as _;
use tokio::sync::{oneshot, watch};

use super::{
    Body, ChildError, ChildSpec, ChildState, Drained, Life, Phase, Registry, Start, Supervisor,
};

struct Tree {
    registry: Registry,
    phase: watch::Sender<Phase>,
    supervisor: Addr<Supervisor>,
    arbiter: Arbiter,
}

impl Tree {
    fn new() -> Self {
        let (registry, phase) = (Registry::default(), watch::Sender::new(Phase::Run));
        let supervisor = Supervisor::new(registry.clone(), phase.subscribe()).start();
        Self {
            registry,
            phase,
            supervisor,
            arbiter: Arbiter::new(),
        }
    }

    async fn start<F, B>(&self, name: &str, body: B)
    where
        F: Future<Output = Result<(), ChildError>> + 'static,
        B: Fn(Life) -> F + Send + Sync + 'static,
    {
        let body: Body = Arc::new(move |life| body(life).boxed_local());
        let spec = ChildSpec {
            name: name.to_owned(),
            arbiter: self.arbiter.handle(),
            body,
        };
        self.supervisor
            .send(Start(spec))
            .await
            .expect("a supervisor");
    }

    async fn drain(&self) {
        self.phase.send_replace(Phase::Drain);
        let (drained, wait) = oneshot::channel();
        self.supervisor
            .send(Drained(drained))
            .await
            .expect("a supervisor");
        tokio::time::timeout(Duration::from_secs(30), wait)
            .await
            .expect("a drain")
            .expect("a word");
    }
}

/// A body that does `what` at its first starts, given how many there were, and signals when it is
/// past them.
fn fails_at_first(
    failures: u32,
    what: fn(u32) -> Result<(), ChildError>,
) -> (
    impl Fn(Life) -> futures_util::future::LocalBoxFuture<'static, Result<(), ChildError>>,
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
    tokio::time::timeout(Duration::from_secs(30), wait)
        .await
        .expect("in time")
        .expect("a signal");
}

#[actix_rt::test]
async fn a_panic_is_counted_and_the_child_is_started_again() {
    let tree = Tree::new();
    let (body, past) = fails_at_first(2, |_| panic!("told to panic"));
    tree.start("victim", body).await;
    soon(past).await;
    let status = tree.registry.child("victim").expect("a status");
    assert_eq!((status.state, status.restarts), (ChildState::Running, 2));
    let (error, _) = status.last_error.expect("the last error");
    assert_eq!(error, "panicked: told to panic");
    tree.drain().await;
    assert_eq!(
        tree.registry.child("victim").unwrap().state,
        ChildState::Drained
    );
}

#[actix_rt::test]
async fn a_panic_before_the_first_await_is_caught_too() {
    let tree = Tree::new();
    let starts = Arc::new(AtomicU32::new(0));
    let (past, is_past) = watch::channel(false);
    let past = Arc::new(past);
    tree.start("victim", move |life: Life| {
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
    })
    .await;
    soon(is_past).await;
    tree.drain().await;
}

#[actix_rt::test]
async fn an_error_and_an_early_end_are_failures_and_do_not_touch_the_siblings() {
    let tree = Tree::new();
    let (sibling, sibling_runs) = fails_at_first(0, |_| Ok(()));
    tree.start("sibling", sibling).await;
    let (failing, past_errors) = fails_at_first(1, |_| Err("no broker".into()));
    tree.start("failing", failing).await;
    let (ending, past_ends) = fails_at_first(1, |_| Ok(()));
    tree.start("ending", ending).await;
    soon(sibling_runs).await;
    soon(past_errors).await;
    soon(past_ends).await;
    assert_eq!(tree.registry.child("sibling").unwrap().restarts, 0);
    assert_eq!(tree.registry.child("failing").unwrap().restarts, 1);
    let ended = tree.registry.child("ending").unwrap();
    assert_eq!(ended.restarts, 1);
    assert!(
        ended
            .last_error
            .unwrap()
            .0
            .contains("before it was told to")
    );
    tree.drain().await;
}

#[actix_rt::test]
async fn a_child_that_waits_for_its_restart_does_not_hold_up_a_drain() {
    let tree = Tree::new();
    let (body, _) = fails_at_first(u32::MAX, |_| Err("for ever".into()));
    tree.start("victim", body).await;
    while tree
        .registry
        .child("victim")
        .is_none_or(|status| status.restarts < 3)
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tree.drain().await;
}
