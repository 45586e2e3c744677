//! Failures that people who run outboxes, inboxes and consumers have met, each as a test of the
//! whole running system: what goes wrong goes wrong under the actors, and what is looked at is what
//! comes out at the end. The same failures under one store or one driver alone stand with those.
//!
//! | | what was met | under the actors | beneath them |
//! |---|---|---|---|
//! | F01 | a lower number commits later and is skipped | [`dispatcher`] | `conformance::store::outbox`, `postgres::outbox` |
//! | F02 | order by random ids | [`dispatcher`] | `conformance::store::outbox` |
//! | F03 | the broker stalls in a transaction | [`dispatcher`] | |
//! | F04 | an outage burns attempts, or spins | [`dispatcher`], broker and database | `supervision::child` of the runtime |
//! | F05 | an unknown type stops the loop | [`dispatcher`] | `conformance::store::outbox` |
//! | F06 | rows that cannot leave fill the batch | [`dispatcher`]; set aside: [`dispatch_failure`] | `conformance::store::outbox`, `postgres::outbox` |
//! | F07 | a failed head is overtaken, or silences its key | [`dispatcher`]; set aside: [`dispatch_failure`] | `outbox::wave` of the runtime |
//! | F08 | a late owner overwrites what was settled | [`dispatcher`]; set aside: [`dispatch_failure`] | `conformance::store::outbox` |
//! | F09 | an immediate publish races the poller | [`dispatcher`]; the crash: `guarantees::nothing_lost` | |
//! | F10 | one message, two consumers in a process | `guarantees::once` | `conformance::store::inbox` |
//! | F11 | effect committed, mark not | `guarantees::once`, `guarantees::atomic` | `conformance::store::inbox` |
//! | F12 | a copy sends again | [`consumer`], `guarantees::once` | |
//! | F13 | a hand-over breaks the order | [`consumer`], `guarantees::order` | `rabbitmq::hand_over` |
//! | F14 | unlimited prefetch | [`consumer`] | `rabbitmq::prefetch` |
//! | F15 | no id, no headers | [`consumer`] | `rabbitmq::foreign` |
//! | F16 | the backoff overflows | | `retry::backoff`, `retry::policy` of the runtime |
//! | F17 | what kills its process is redelivered for ever, or lost | [`retry`], killed processes; [`retry`], the broker's limit | `rabbitmq::dead_queue` |
//! | F18 | a replay fails at once | [`retry`] | |
//! | F19 | more processes, more tries | [`retry`] | |
//! | F20 | a confirm never comes | [`broker`] | `rabbitmq::unpublished` |
//! | F21 | confirmed, and in no queue | `guarantees::nothing_lost`; set aside, dropped: [`dispatch_failure`] | `rabbitmq::unpublished` |
//! | F22 | a consumer dies silently | [`broker`], restart and deleted queue | `rabbitmq::lost` |
//! | F23 | a half-open connection | [`broker`] | `rabbitmq::half_open` |
//! | F24 | an alarm | [`broker`], with a stop and with its end | `rabbitmq::alarm` |
//! | F25 | a handler outlives its channel | [`broker`] | `rabbitmq::lost` |
//! | F26 | a queue with other arguments | [`broker`] | `rabbitmq::arguments`, `broker::declaration` of the runtime |
//! | F27 | a cancelled future leaves a transaction open | [`database`] | `postgres::session`, `sqlite::cancel` |
//! | F28 | SQLite's lock | [`database`] | `sqlite::processes`, `sqlite::turn` |
//! | F29 | serialisation failures | [`database`] | `postgres::session` |
//! | F30 | notifications: size, lost listener | [`database`] | `postgres::listen` |
//! | F31 | NUL and lone surrogates | [`payload`], `guarantees::bytes` | `conformance::store` |
//! | F32 | what cannot be decoded is lost, or loops | [`payload`] | |
//! | F33 | too large | [`payload`]; with its key parked: [`dispatch_failure`] | `rabbitmq::oversized` |
//! | F34 | a panic kills the actor | [`retry`] | `supervision::tests` of the runtime |
//!
//! F35 and F36 belong to supervision and clean-up. Beside them, two kinds of strangers: a client of the broker's ([`broker`]) and a writer of plain SQL
//! ([`database`]) that no code of ours serves.

mod broker;
mod consumer;
mod database;
mod dispatch_failure;
mod dispatcher;
mod failover;
mod payload;
mod retry;

use std::collections::BTreeMap;

use posta::broker::rabbitmq::RabbitMqOptions;
use posta::layout::Generation;
use posta::lease::{MemberId, Resource};
use posta::message::SLOTS;
use posta::store::{LeaseStore, Store};
use posta::supervision::ChildState;
use posta::{Broker, Builder, Envelope, Posta};

use crate::world::service::{EFFECTS, Fate, Numbered, quick};
use crate::world::{TestDatabase, World};

/// A service on the world's databases with a broker of its own.
fn builder_on<D: TestDatabase>(world: &World<D>, options: RabbitMqOptions) -> Builder<D> {
    let posta = Posta::<D>::builder(&world.database_url, Broker::rabbitmq(options));
    quick(posta).tables(world.tables.clone())
}

/// The message with this number of a key.
fn numbered(key: usize, number: i64) -> Numbered {
    Numbered {
        key: format!("k{key}"),
        number,
        fate: Fate::Succeed,
    }
}

/// The same in its envelope.
fn envelope(key: usize, number: i64) -> Envelope {
    Envelope::of(&numbered(key, number)).expect("an envelope")
}

/// Enqueues envelopes in one transaction.
async fn send<D: TestDatabase>(posta: &Posta<D>, envelopes: Vec<Envelope>) {
    posta
        .transaction(async |tx| {
            for envelope in envelopes {
                tx.enqueue_envelope(envelope)?;
            }
            Ok::<_, anyhow::Error>(())
        })
        .await
        .expect("a transaction that enqueues");
}

/// What an actor is missing, or nothing.
fn state_of<D: TestDatabase>(posta: &Posta<D>, child: &str) -> String {
    match posta.registry().child(child).map(|status| status.state) {
        Some(ChildState::Degraded(why)) => why,
        _ => String::new(),
    }
}

/// Why an actor last failed or was degraded, or nothing.
fn last_error_of<D: TestDatabase>(posta: &Posta<D>, child: &str) -> String {
    let status = posta.registry().child(child);
    let error = status.and_then(|status| status.last_error);
    error.map(|(text, _)| text).unwrap_or_default()
}

/// The names of a consumer's partition actors.
fn partitions_of(consumer: &str, count: u8) -> Vec<String> {
    (0..count)
        .map(|number| format!("{consumer} {number}"))
        .collect()
}

/// Which of a consumer's partitions a key's messages come to.
fn partition_of(key: usize, partitions: u8) -> u8 {
    envelope(key, 0).slot().number() / (SLOTS / partitions)
}

/// The partitions of the consumer [`EFFECTS`].
fn partitions() -> Resource {
    Resource::partitions(EFFECTS, Generation::first(4))
}

/// How many lanes or partitions each process owns, the fewest first.
async fn owners<D: TestDatabase>(store: &D::Store, resource: &Resource) -> Vec<usize> {
    let mut session = store.begin().await.expect("a transaction");
    let owners = store.owners(&mut session, resource).await;
    session.commit().await.expect("a commit");
    let mut shares: BTreeMap<MemberId, usize> = BTreeMap::new();
    for owner in owners
        .expect("the owners")
        .into_iter()
        .filter_map(|(_, owner)| owner)
    {
        *shares.entry(owner).or_default() += 1;
    }
    let mut shares: Vec<usize> = shares.into_values().collect();
    shares.sort_unstable();
    shares
}
