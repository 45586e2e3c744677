use super::child::Process;
use super::judged::{assert_all_in_order, assert_queues, until_rest};
use super::service::{Version, beta, enqueue, keys};
use crate::world::service::builder;
use crate::world::{BrokerKind, TestDatabase, World};

/// The points of a change, where there are queues to move.
const POINTS: [&str; 8] = [
    "layout.begun",
    "layout.bound",
    "layout.unbound",
    "layout.unbinding_recorded",
    "layout.drained",
    "layout.switched",
    "layout.removed",
    "layout.cleared",
];

/// Those without.
const POINTS_BY_SLOT: [&str; 2] = ["layout.begun", "layout.switched"];

/// The only process that could dies there; the next one goes on from there.
async fn a_change_goes_on_from_where_a_process_died<D: TestDatabase>(
    broker: BrokerKind,
    point: &str,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let former = Process::start(&world, 4, Version::One, None).await;
    let producer = builder(&world).start().await.expect("a producer");
    let keys = keys(12);
    for number in 0..5 {
        enqueue(&producer, &keys, number, beta).await;
    }
    former.stop().await;
    for number in 5..15 {
        enqueue(&producer, &keys, number, beta).await;
    }
    Process::start(&world, 2, Version::One, Some(point))
        .await
        .died()
        .await;
    let heir = Process::start(&world, 2, Version::One, None).await;
    for number in 15..20 {
        enqueue(&producer, &keys, number, beta).await;
    }
    let number = until_rest::<D>(&store, 2).await;
    assert_all_in_order::<D>(&store, &keys, 20).await;
    if broker == BrokerKind::RabbitMq {
        assert_queues(&world, number, 2).await;
    }
    producer.stop().await.expect("a drain");
    heir.stop().await;
}

fn at_every_point<D: TestDatabase>(broker: BrokerKind, points: &[&str]) {
    // Several at once, since most of it is waiting; each on a thread of its own, since one that waits
    // for the management API lets its thread do nothing else, and the database of the others would
    // seem to be silent.
    for points in points.chunks(4) {
        std::thread::scope(|scope| {
            for point in points {
                scope.spawn(|| {
                    let world = a_change_goes_on_from_where_a_process_died::<D>(broker, point);
                    actix_rt::System::new().block_on(world);
                });
            }
        });
    }
}

#[test]
fn a_change_survives_a_crash_at_every_point_with_sqlite_and_rabbitmq() {
    at_every_point::<posta::Sqlite>(BrokerKind::RabbitMq, &POINTS);
}

#[test]
fn a_change_survives_a_crash_at_every_point_with_postgres_and_rabbitmq() {
    at_every_point::<posta::Postgres>(BrokerKind::RabbitMq, &POINTS);
}

#[test]
fn a_change_survives_a_crash_at_every_point_with_the_database_broker() {
    at_every_point::<posta::Sqlite>(BrokerKind::Database, &POINTS_BY_SLOT);
    at_every_point::<posta::Postgres>(BrokerKind::Database, &POINTS_BY_SLOT);
}
