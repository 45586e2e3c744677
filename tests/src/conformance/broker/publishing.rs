use posta::broker::PublishOutcome;
use posta::message::{CAUSATION_ID, CORRELATION_ID, Envelope, Headers, TRACEPARENT, TRACESTATE};

use super::BrokerUnderTest;
use super::bench::{Bench, envelope, envelopes_of, is_silent, message_type, receive, unlike};

pub(super) async fn confirmed_messages_are_delivered_to_every_consumer_of_their_type<
    B: BrokerUnderTest,
>() {
    let mut bench = Bench::<B>::start().await;
    let billing = bench
        .declare("billing", 1, &["order.placed", "order.paid"])
        .await;
    let shipping = bench.declare("shipping", 1, &["order.placed"]).await;
    let placed = unlike("order.placed", 30);
    let paid = unlike("order.paid", 5);
    bench.publish_all(&placed).await;
    bench.publish_all(&paid).await;

    for (topology, expected) in [(billing, 35), (shipping, 30)] {
        let queue = topology.queues().next().expect("one partition");
        let mut subscription = bench.subscribe(&queue).await;
        let mut got = envelopes_of(bench.take(&mut subscription, expected).await);
        assert!(is_silent(&mut subscription).await, "each came once");
        let mut sent: Vec<&Envelope> = placed.iter().chain(&paid).take(expected).collect();
        sent.sort_by_key(|it| it.id);
        got.sort_by_key(|it| it.id);
        assert_eq!(
            got.iter()
                .map(|it| (it.id, &it.payload))
                .collect::<Vec<_>>(),
            sent.iter()
                .map(|it| (it.id, &it.payload))
                .collect::<Vec<_>>()
        );
        subscription.close().await;
    }
}

pub(super) async fn payload_bytes_arrive_as_they_were_sent<B: BrokerUnderTest>() {
    let mut bench = Bench::<B>::start().await;
    let topology = bench.declare("archive", 1, &["bytes"]).await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let payloads = [
        Vec::new(),
        b"\0".to_vec(),
        every_byte,
        br#"{"a":"\ud800", "b": "\u0000"}"#.to_vec(),
        b"\xff\xfe not UTF-8".to_vec(),
        // Over several frames, and an uneven last one.
        (0..1_000_003_u32).map(|n| (n * 7) as u8).collect(),
    ];
    let sent: Vec<Envelope> = payloads
        .iter()
        .map(|payload| envelope("bytes", "one-key", payload.clone()))
        .collect();
    bench.publish_all(&sent).await;

    let queue = topology.queues().next().expect("one partition");
    let mut subscription = bench.subscribe(&queue).await;
    let got = envelopes_of(bench.take(&mut subscription, sent.len()).await);
    for (got, payload) in got.iter().zip(&payloads) {
        assert!(got.payload == *payload, "{} bytes differ", payload.len());
    }
    subscription.close().await;
}

pub(super) async fn every_field_of_an_envelope_arrives<B: BrokerUnderTest>() {
    let mut bench = Bench::<B>::start().await;
    let topology = bench.declare("archive", 1, &["fields"]).await;
    let mut headers = Headers::default();
    for (name, value) in [
        (CORRELATION_ID, "order 7, München"),
        (CAUSATION_ID, "0190a1b2-0000-7000-8000-000000000000"),
        (
            TRACEPARENT,
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ),
        (TRACESTATE, "rojo=00f067aa0ba902b7"),
        ("empty", ""),
        ("content-encoding", "gzip"),
        ("emoji", "🦀 שלום"),
    ] {
        headers.set(name, value).expect("a valid header");
    }
    headers
        .set("n".repeat(255), "v".repeat(20_000))
        .expect("a valid header");
    let mut long_correlation = Headers::default();
    long_correlation
        .set(CORRELATION_ID, "c".repeat(300))
        .expect("a valid header");

    let full = Envelope::builder(message_type("fields"), "{}")
        .version(i32::MAX as u32)
        .key(Some(
            posta::OrderingKey::new("ü".repeat(127)).expect("a valid key"),
        ))
        .headers(headers)
        .content_type("application/vnd.example+json; charset=utf-8")
        .build()
        .expect("a valid envelope");
    let least = Envelope::builder(message_type("fields"), "")
        .build()
        .expect("a valid envelope");
    let long = Envelope::builder(message_type("fields"), "")
        .headers(long_correlation)
        .build()
        .expect("a valid envelope");
    let sent = [full, least, long];
    bench.publish_all(&sent).await;

    let queue = topology.queues().next().expect("one partition");
    let mut subscription = bench.subscribe(&queue).await;
    let got = envelopes_of(bench.take(&mut subscription, sent.len()).await);
    for sent in sent {
        let mut got = got
            .iter()
            .find(|got| got.id == sent.id)
            .expect("each arrives")
            .clone();
        // Set by the database's clock when the envelope was enqueued in one; the suite makes
        // envelopes without.
        got.enqueued_at = None;
        assert_eq!(got, sent);
    }
    subscription.close().await;
}

pub(super) async fn an_unroutable_message_is_returned_and_its_neighbours_are_confirmed<
    B: BrokerUnderTest,
>() {
    const MESSAGES: usize = 10_000;
    const UNROUTABLE: usize = 1_450;
    let mut bench = Bench::<B>::start().await;
    bench.declare("archive", 4, &["wanted"]).await;
    // Spread unevenly, with runs: 1, 2, 4, ... positions apart modulo a prime.
    let mut unwanted = vec![false; MESSAGES];
    let mut position = 1;
    let mut left = UNROUTABLE;
    while left > 0 {
        if !unwanted[position] {
            unwanted[position] = true;
            left -= 1;
        }
        position = (position * 2 + 3) % 9_973;
        if unwanted[position] {
            position = unwanted
                .iter()
                .position(|taken| !taken)
                .expect("most are free");
        }
    }
    let sent: Vec<Envelope> = unwanted
        .iter()
        .enumerate()
        .map(|(n, unwanted)| {
            envelope(
                if *unwanted { "unwanted" } else { "wanted" },
                &format!("key-{n}"),
                "x",
            )
        })
        .collect();

    let outcomes = bench.publish(&sent).await;
    let wrong = outcomes
        .iter()
        .zip(&unwanted)
        .filter(|(outcome, unwanted)| match outcome {
            PublishOutcome::Confirmed => **unwanted,
            PublishOutcome::Returned(_) => !**unwanted,
            _ => true,
        })
        .count();
    assert_eq!(wrong, 0, "verdicts about the wrong message");
}

pub(super) async fn each_message_goes_to_the_partition_of_its_slot<B: BrokerUnderTest>() {
    let mut bench = Bench::<B>::start().await;
    let topology = bench
        .declare("notifications", 5, &["document.signed"])
        .await;
    let mut sent = unlike("document.signed", 100);
    sent.extend((0..20).map(|_| {
        Envelope::builder(message_type("document.signed"), "without key")
            .build()
            .expect("valid")
    }));
    bench.publish_all(&sent).await;

    for queue in topology.queues() {
        let mine: Vec<&Envelope> = sent
            .iter()
            .filter(|it| queue.slots().contains(&it.slot().number()))
            .collect();
        let mut subscription = bench.subscribe(&queue).await;
        let mut got = envelopes_of(bench.take(&mut subscription, mine.len()).await);
        assert!(is_silent(&mut subscription).await);
        got.sort_by_key(|it| it.id);
        let mut mine: Vec<_> = mine.iter().map(|it| it.id).collect();
        mine.sort();
        assert_eq!(got.iter().map(|it| it.id).collect::<Vec<_>>(), mine);
        subscription.close().await;
    }
}

pub(super) async fn declaring_again_changes_nothing_and_can_add_types<B: BrokerUnderTest>() {
    let mut bench = Bench::<B>::start().await;
    let topology = bench.declare("archive", 2, &["first"]).await;
    let before = unlike("first", 1);
    bench.publish_all(&before).await;
    bench.declare("archive", 2, &["first"]).await;
    bench.declare("archive", 2, &["first", "second"]).await;
    let after = unlike("second", 1);
    bench.publish_all(&after).await;

    // The same key, so the same queue, in order.
    let slot = before[0].slot().number();
    let queue = topology
        .queues()
        .find(|queue| queue.slots().contains(&slot))
        .expect("one has it");
    let mut subscription = bench.subscribe(&queue).await;
    let mut got = Vec::new();
    while got.len() < 2 {
        got.extend(receive(&mut subscription, 1).await);
        bench
            .acknowledge(&mut subscription, &got[got.len() - 1..])
            .await;
    }
    let got = envelopes_of(got);
    assert_eq!([got[0].id, got[1].id], [before[0].id, after[0].id]);
    assert!(is_silent(&mut subscription).await);
    subscription.close().await;
}
