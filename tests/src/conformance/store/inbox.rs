//! The inbox: what has been handled.

use std::collections::{HashMap, HashSet};

use futures_util::future::join_all;
use posta::store::{Admission, Fence, InboxStore, RetryStore, Store};
use posta::{MessageId, OrderingKey};

pub(super) use super::given::fresh as start;
use super::given::{LONG, Place, failed, key_of, keyed, successor};
use crate::harness::database::TestDatabase;

pub(super) async fn an_id_is_fresh_once<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    let ids: Vec<MessageId> = (0..5).map(|_| MessageId::new()).collect();
    assert_eq!(
        place.admit("c", &fence, &ids[..3], &[]).await,
        admitted(&ids[..3], &[])
    );
    assert_eq!(
        place.admit("c", &fence, &ids, &[]).await,
        admitted(&ids[3..], &[])
    );
    assert_eq!(
        place.admit("c", &fence, &ids, &[]).await,
        admitted(&[], &[])
    );
}

pub(super) async fn an_id_twice_in_a_batch_is_one_id<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    let [a, b] = [MessageId::new(), MessageId::new()];
    assert_eq!(
        place.admit("c", &fence, &[b, a, b, a, a], &[]).await,
        admitted(&[a, b], &[])
    );
    assert_eq!(handled(place, "c").await, 2);
}

pub(super) async fn two_consumers_each_get_the_same_id<D: TestDatabase>(place: &Place<D>) {
    let id = MessageId::new();
    for consumer in ["billing", "shipping"] {
        let fence = place.own_partition(consumer).await;
        assert_eq!(
            place.admit(consumer, &fence, &[id], &[]).await,
            admitted(&[id], &[])
        );
        assert_eq!(
            place.admit(consumer, &fence, &[id], &[]).await,
            admitted(&[], &[])
        );
    }
    assert_eq!(place.rows("inbox").await, 2);
}

pub(super) async fn an_admission_that_is_rolled_back_leaves_ids_fresh<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let ids = [MessageId::new()];
    let mut session = place.begin().await;
    let admission = place
        .store
        .admit(&mut session, "c", &fence, &ids, &[])
        .await
        .unwrap();
    assert_eq!(admission, admitted(&ids, &[]));
    session.rollback().await;
    assert_eq!(
        place.admit("c", &fence, &ids, &[]).await,
        admitted(&ids, &[])
    );
}

pub(super) async fn keys_on_hold_are_seen_and_only_those_asked_for<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let due = std::time::Duration::ZERO;
    place
        .hold(
            "c",
            &[
                failed(&keyed("later", b""), LONG),
                failed(&keyed("now ключ", b""), due),
                successor(&keyed("now ключ", b"")),
                failed(&keyed("not asked for", b""), LONG),
            ],
        )
        .await;
    place
        .hold("other", &[failed(&keyed("of another", b""), LONG)])
        .await;
    let asked = ["later", "now ключ", "of another", "free", "later"].map(key_of);
    let admission = place.admit("c", &fence, &[], &asked).await;
    assert_eq!(
        admission,
        admitted(&[], &[key_of("later"), key_of("now ключ")])
    );
}

pub(super) async fn nothing_is_admitted_without_a_valid_fence<D: TestDatabase>(place: &Place<D>) {
    let good = place.own_partition("c").await;
    let id = MessageId::new();
    for (what, fence) in place.bad_fences(&good).await {
        assert_eq!(
            attempt(place, &fence, id).await,
            Admission::LeaseLost,
            "a fence {what}"
        );
    }
    let lanes = place.own_lanes().await;
    assert_eq!(attempt(place, &lanes[0], id).await, Admission::LeaseLost);
    assert_eq!(attempt(place, &good, id).await, admitted(&[id], &[]));
    place.expire(&good).await;
    assert_eq!(
        attempt(place, &good, id).await,
        Admission::LeaseLost,
        "its time is over"
    );
    let successor = place.own_expired(&good.resource, 0).await;
    assert_eq!(
        attempt(place, &good, id).await,
        Admission::LeaseLost,
        "another member's now"
    );
    assert_eq!(
        place.admit("c", &successor, &[id], &[]).await,
        admitted(&[id], &[])
    );
}

pub(super) async fn overlapping_batches_admit_each_id_once_without_deadlock<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let ids: Vec<MessageId> = (0..60).map(|_| MessageId::new()).collect();
    let batches = (0..8).map(|batch: usize| {
        // Overlapping windows, every second one backwards, ending in the ids with which the others
        // begin.
        let mut window: Vec<MessageId> = (0..30)
            .map(|index| ids[(batch * 13 + index) % ids.len()])
            .collect();
        if batch % 2 == 1 {
            window.reverse();
        }
        window
    });
    let admissions = join_all(batches.map(|window| {
        let fence = &fence;
        async move { place.admit("c", fence, &window, &[]).await }
    }))
    .await;
    let mut times: HashMap<MessageId, u32> = HashMap::new();
    for admission in admissions {
        let Admission::Admitted { fresh, .. } = admission else {
            panic!("the lease is held")
        };
        fresh
            .into_iter()
            .for_each(|id| *times.entry(id).or_default() += 1);
    }
    assert!(times.values().all(|times| *times == 1), "{times:?}");
    assert_eq!(times.len() as u64, handled(place, "c").await);
}

/// A successor's delivery of the same message, while its former owner's transaction that puts the
/// message on hold has not ended.
pub(super) async fn a_hold_of_a_transaction_that_had_the_id_is_seen<D: TestDatabase>(
    place: &Place<D>,
) {
    let former = place.own_partition("c").await;
    let message = keyed("k", b"");
    let other = place.another().await;
    let mut first = place.begin().await;
    let admission = place
        .store
        .admit(&mut first, "c", &former, &[message.id], &[])
        .await
        .unwrap();
    assert_eq!(admission, admitted(&[message.id], &[]));
    place
        .store
        .hold(&mut first, "c", &[failed(&message, LONG)])
        .await
        .unwrap();
    let second = async {
        let mut second = other.begin().await.unwrap();
        let ids = [MessageId::new(), message.id];
        let keys = [key_of("k")];
        let admission = other
            .admit(&mut second, "c", &former, &ids, &keys)
            .await
            .unwrap();
        second.commit().await.unwrap();
        (admission, ids[0])
    };
    let end = async {
        // Lets the second go as far as it gets; what must hold does not depend on how far that is.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        first.commit().await.unwrap();
    };
    let ((admission, new), ()) = futures_util::future::join(second, end).await;
    assert_eq!(admission, admitted(&[new], &[key_of("k")]));
}

pub(super) async fn handled_messages_are_counted_by_consumer<D: TestDatabase>(place: &Place<D>) {
    assert_eq!(handled(place, "c").await, 0);
    let fence = place.own_partition("c").await;
    let ids: Vec<MessageId> = (0..7).map(|_| MessageId::new()).collect();
    let _ = place.admit("c", &fence, &ids, &[]).await;
    assert_eq!(
        (handled(place, "c").await, handled(place, "other").await),
        (7, 0)
    );
}

fn admitted(fresh: &[MessageId], held: &[OrderingKey]) -> Admission {
    Admission::Admitted {
        fresh: fresh.iter().copied().collect::<HashSet<_>>(),
        held: held.iter().cloned().collect(),
    }
}

/// Admits as the contract wants it: a lost lease is rolled back.
async fn attempt<D: TestDatabase>(place: &Place<D>, fence: &Fence, id: MessageId) -> Admission {
    let mut session = place.begin().await;
    let admission = place
        .store
        .admit(&mut session, "c", fence, &[id], &[])
        .await
        .unwrap();
    session.rollback().await;
    admission
}

async fn handled<D: TestDatabase>(place: &Place<D>, consumer: &str) -> u64 {
    let mut session = place.begin().await;
    let handled = place.store.handled(&mut session, consumer).await.unwrap();
    session.commit().await.unwrap();
    handled
}
