use posta::message::Envelope;

use super::BrokerUnderTest;
use super::bench::{Bench, envelope, envelopes_of, is_silent, receive};

fn in_one_key(count: usize) -> Vec<Envelope> {
    (0..count)
        .map(|n| envelope("written", "one-key", n.to_string()))
        .collect()
}

pub(super) async fn what_is_acknowledged_does_not_come_back<B: BrokerUnderTest>() {
    let mut bench = Bench::<B>::start().await;
    let topology = bench.declare("archive", 1, &["written"]).await;
    let queue = topology.queues().next().expect("one partition");
    bench.publish_all(&in_one_key(10)).await;
    let mut subscription = bench.subscribe(&queue).await;
    bench.take(&mut subscription, 10).await;
    subscription.close().await;
    let mut subscription = bench.subscribe(&queue).await;
    assert!(is_silent(&mut subscription).await);
    subscription.close().await;
}

pub(super) async fn what_is_not_acknowledged_comes_back_at_its_old_place<B: BrokerUnderTest>() {
    let mut bench = Bench::<B>::start().await;
    let topology = bench.declare("archive", 1, &["written"]).await;
    let queue = topology.queues().next().expect("one partition");
    let sent = in_one_key(12);
    bench.publish_all(&sent).await;

    let mut subscription = bench.subscribe(&queue).await;
    let taken = bench.take(&mut subscription, 2).await;
    assert!(taken.iter().all(|delivery| !delivery.redelivered));
    // Some are handed out and some not; none is acknowledged.
    receive(&mut subscription, 3).await;
    subscription.close().await;

    // Dropped in the middle instead of closed: the same.
    let mut subscription = bench.subscribe(&queue).await;
    receive(&mut subscription, 3).await;
    drop(subscription);

    let mut subscription = bench.subscribe(&queue).await;
    let got = bench.take(&mut subscription, 10).await;
    if bench.driver.capabilities().delivery_limit {
        assert!(
            got[0].redelivered,
            "the broker says that it delivered before"
        );
    }
    let ids: Vec<_> = envelopes_of(got).iter().map(|it| it.id).collect();
    assert_eq!(ids, sent[2..].iter().map(|it| it.id).collect::<Vec<_>>());
    assert!(is_silent(&mut subscription).await);
    subscription.close().await;
}

pub(super) async fn acknowledging_some_takes_no_others_along<B: BrokerUnderTest>() {
    let mut bench = Bench::<B>::start().await;
    let topology = bench.declare("archive", 1, &["written"]).await;
    let queue = topology.queues().next().expect("one partition");
    let sent = in_one_key(10);
    bench.publish_all(&sent).await;
    let mut subscription = bench.subscribe(&queue).await;
    let mut held = Vec::new();
    while held.len() < 10 {
        let more = receive(&mut subscription, 10).await;
        // A queue that is read again and again shows the same again.
        held.extend(
            more.into_iter()
                .filter(|it| {
                    held.iter()
                        .all(|held: &posta::broker::Delivery| held.tag != it.tag)
                })
                .collect::<Vec<_>>(),
        );
    }
    let acknowledged: Vec<_> = [9, 1, 3, 4, 0].map(|n: usize| held[n].clone()).to_vec();
    bench.acknowledge(&mut subscription, &acknowledged).await;
    // Again: they are no longer outstanding, and nothing breaks.
    bench
        .acknowledge(&mut subscription, &acknowledged[..2])
        .await;
    subscription.close().await;

    let mut subscription = bench.subscribe(&queue).await;
    let got = envelopes_of(bench.take(&mut subscription, 5).await);
    let ids: Vec<_> = got.iter().map(|it| it.id).collect();
    let expected = [2, 5, 6, 7, 8].map(|n: usize| sent[n].id);
    assert_eq!(ids, expected);
    assert!(is_silent(&mut subscription).await);
    subscription.close().await;
}
