//! A panic on one of SQLite's blocking threads is the handler's that waits for it.

use posta::retry::RetryPolicy;
use posta::{Consumer, Failure, Sqlite, Tx};

use crate::world::effects::dead_letters_of;
use crate::world::service::{EFFECTS, Fate, Numbered, builder, enqueue};
use crate::world::{BrokerKind, World, until};

async fn panics_on_a_blocking_thread(_: Numbered, tx: &mut Tx<'_, Sqlite>) -> Result<(), Failure> {
    tx.spawn_blocking(|_| -> diesel::QueryResult<()> { panic!("on another thread") })
        .await?;
    Ok(())
}

#[actix_rt::test]
async fn a_panic_on_a_blocking_thread_is_a_failed_try_with_its_place_and_frames() {
    let world = World::<Sqlite>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let consumer = Consumer::named(EFFECTS)
        .partitions(1)
        .retry(RetryPolicy::default().attempts_max(1))
        .handle_with::<Numbered, _>(panics_on_a_blocking_thread);
    let posta = builder(&world)
        .consumer(consumer)
        .start()
        .await
        .expect("a running service");
    enqueue(&posta, 1, 0..1, |_, _| Fate::Succeed).await;
    until("it is set aside", async || {
        dead_letters_of::<Sqlite>(&store).await.len() == 1
    })
    .await;
    let letter = &dead_letters_of::<Sqlite>(&store).await[0];
    assert_eq!(letter.reason, "panicked");
    let place = "on another thread (at tests/src/supervision/panic.rs:";
    assert!(letter.error.contains(place), "{}", letter.error);
    let child = posta.registry().child("effects 0").expect("its actor");
    assert_eq!(child.restarts, 0, "{child:?}");
    let counts = posta.status().await.expect("a status").counts;
    assert!(
        child.panics >= 1 && counts.panics == child.panics,
        "{counts:?}"
    );
    let panic = child.last_panic.expect("the last panic");
    assert_eq!(panic.text, "on another thread");
    if let Some(frames) = panic.backtrace {
        assert!(frames.contains("panics_on_a_blocking_thread"), "{frames}");
    }
    posta.stop().await.expect("a drain");
}
