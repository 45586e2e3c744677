use std::collections::HashMap;
use std::time::Duration;

use futures_util::FutureExt;
use posta::broker::DeliveryTag;
use posta::message::Envelope;

use super::BrokerUnderTest;
use super::bench::{Bench, SOON, envelope, envelopes_of, is_silent, receive, unlike};

pub(super) async fn messages_of_a_key_arrive_in_the_order_of_publishing<B: BrokerUnderTest>() {
    const KEYS: usize = 40;
    const ROUNDS: usize = 25;
    let mut bench = Bench::<B>::start().await;
    let topology = bench.declare("ledger", 3, &["booked"]).await;
    let sent: Vec<Envelope> = (0..ROUNDS)
        .flat_map(|round| {
            (0..KEYS)
                .map(move |key| envelope("booked", &format!("account-{key}"), round.to_string()))
        })
        .collect();
    bench.publish_all(&sent).await;

    for queue in topology.queues() {
        let mine = sent
            .iter()
            .filter(|it| queue.slots().contains(&it.slot().number()))
            .count();
        let mut subscription = bench.subscribe(&queue).await;
        let got = envelopes_of(bench.take(&mut subscription, mine).await);
        let mut rounds: HashMap<String, usize> = HashMap::new();
        for envelope in got {
            let key = envelope.key.expect("all have a key").to_string();
            let next = rounds.entry(key.clone()).or_default();
            assert_eq!(envelope.payload, next.to_string(), "in order for {key}");
            *next += 1;
        }
        assert!(rounds.values().all(|rounds| *rounds == ROUNDS));
        subscription.close().await;
    }
}

pub(super) async fn no_more_than_the_limit_and_no_waiting_for_more<B: BrokerUnderTest>() {
    let mut bench = Bench::<B>::start().await;
    let topology = bench.declare("archive", 1, &["written"]).await;
    let queue = topology.queues().next().expect("one partition");
    let mut subscription = bench.subscribe(&queue).await;
    assert!(is_silent(&mut subscription).await);

    bench.publish_all(&unlike("written", 1)).await;
    // Asked for ten, it comes back with the one that is there.
    let one = receive(&mut subscription, 10).await;
    assert_eq!(one.len(), 1);
    bench.acknowledge(&mut subscription, &one).await;

    bench.publish_all(&unlike("written", 15)).await;
    let mut left = 15;
    while left > 0 {
        let some = receive(&mut subscription, 4).await;
        bench.acknowledge(&mut subscription, &some).await;
        left -= some.len();
    }
    assert!(is_silent(&mut subscription).await);
    subscription.close().await;
}

pub(super) async fn a_cancelled_receive_loses_nothing<B: BrokerUnderTest>() {
    const MESSAGES: usize = 90;
    let mut bench = Bench::<B>::start().await;
    let topology = bench.declare("archive", 1, &["written"]).await;
    let queue = topology.queues().next().expect("one partition");
    let mut subscription = bench.subscribe(&queue).await;
    let sent: Vec<Envelope> = (0..MESSAGES)
        .map(|n| envelope("written", "one-key", n.to_string()))
        .collect();
    let mut got = Vec::new();
    for (round, more) in sent.chunks(6).enumerate() {
        if got.len() == round * 6 {
            // There is nothing: it begins to wait, and is dropped.
            assert!(subscription.receive(3).now_or_never().is_none());
        }
        bench.publish_all(more).await;
        let published = (round + 1) * 6;
        // Dropped after its first poll, then a little later each time, then not at all.
        let a_little = Duration::from_micros(round as u64 * 150);
        for patience in [Duration::ZERO, a_little, SOON, SOON, SOON] {
            if got.len() == published {
                break;
            }
            let received = match patience {
                Duration::ZERO => subscription.receive(3).now_or_never(),
                _ => tokio::time::timeout(patience, subscription.receive(3))
                    .await
                    .ok(),
            };
            if let Some(deliveries) = received {
                let deliveries = deliveries.expect("the subscription is alive");
                bench.acknowledge(&mut subscription, &deliveries).await;
                got.extend(deliveries);
            }
        }
    }
    let left = MESSAGES - got.len();
    got.extend(bench.take(&mut subscription, left).await);
    let got: Vec<_> = envelopes_of(got).iter().map(|it| it.id).collect();
    assert_eq!(got, sent.iter().map(|it| it.id).collect::<Vec<_>>());
    subscription.close().await;
}

pub(super) async fn no_more_is_unacknowledged_than_the_prefetch<B: BrokerUnderTest>() {
    let Some(prefetch) = B::PREFETCH else { return };
    let mut bench = Bench::<B>::start().await;
    let topology = bench.declare("archive", 1, &["written"]).await;
    let queue = topology.queues().next().expect("one partition");
    bench.publish_all(&unlike("written", prefetch * 3)).await;
    let mut subscription = bench.subscribe(&queue).await;
    let mut held = Vec::new();
    while held.len() < prefetch {
        held.extend(receive(&mut subscription, 1_000).await);
    }
    assert_eq!(held.len(), prefetch);
    assert!(is_silent(&mut subscription).await);
    bench.acknowledge(&mut subscription, &held[..3]).await;
    let mut more = Vec::new();
    while more.len() < 3 {
        more.extend(receive(&mut subscription, 1_000).await);
    }
    assert_eq!(more.len(), 3);
    assert!(is_silent(&mut subscription).await);
    let tags: Vec<DeliveryTag> = held.iter().chain(&more).map(|it| it.tag).collect();
    let mut distinct = tags.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), tags.len(), "nothing is returned twice");
    subscription.close().await;
}

pub(super) async fn a_queue_has_one_active_subscription<B: BrokerUnderTest>() {
    let mut bench = Bench::<B>::start().await;
    if !bench.driver.capabilities().single_active_consumer {
        return;
    }
    let topology = bench.declare("archive", 1, &["written"]).await;
    let queue = topology.queues().next().expect("one partition");
    let mut first = bench.subscribe(&queue).await;
    let mut second = bench.subscribe(&queue).await;
    let sent: Vec<Envelope> = (0..10)
        .map(|n| envelope("written", "one-key", n.to_string()))
        .collect();
    bench.publish_all(&sent).await;

    let mut got = Vec::new();
    while got.len() < 10 {
        got.extend(receive(&mut first, 10).await);
    }
    assert!(
        is_silent(&mut second).await,
        "the second waits while the first holds them"
    );
    bench.acknowledge(&mut first, &got[..4]).await;
    first.close().await;
    let rest = envelopes_of(bench.take(&mut second, 6).await);
    let ids: Vec<_> = rest.iter().map(|it| it.id).collect();
    assert_eq!(ids, sent[4..].iter().map(|it| it.id).collect::<Vec<_>>());
    second.close().await;
}
