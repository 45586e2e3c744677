//! What probes are told.

use posta::{Broker, Posta, Postgres};

use crate::harness::proxy::{Proxy, Traffic};
use crate::world::effects::effects_of;
use crate::world::service::{Calls, EFFECTS, Fate, effects_consumer, enqueue, quick};
use crate::world::{BrokerKind, World, until};

/// F22: down, then up; in between it takes requests, since what is enqueued waits.
#[actix_rt::test]
async fn health_tells_of_an_outage_and_of_its_end_and_of_a_drain() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let proxy = Proxy::before(world.vhost().address()).await;
    let broker = Broker::from_url(&world.vhost().url_by(proxy.address())).expect("a valid URL");
    let builder = quick(Posta::<Postgres>::builder(&world.database_url, broker));
    let posta = builder
        .tables(world.tables.clone())
        .consumer(effects_consumer::<Postgres>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    until("all is well", async || {
        posta.health().ready && posta.health().reasons.is_empty()
    })
    .await;
    assert_eq!(posta.health().to_string(), "live, ready");

    proxy.set(Traffic::Cut);
    enqueue(&posta, 4, 0..1, |_, _| Fate::Succeed).await;
    until("health tells of it", async || {
        let health = posta.health();
        health
            .reasons
            .iter()
            .any(|it| it.starts_with("\"effects ") && it.contains("waits: "))
    })
    .await;
    let health = posta.health();
    assert!(health.live && health.ready, "{health}");
    assert!(!posta.registry().is_healthy());
    proxy.set(Traffic::Pass);
    until("all is well again", async || {
        posta.health().reasons.is_empty()
    })
    .await;
    until("what was enqueued has taken effect", async || {
        effects_of::<Postgres>(&store, EFFECTS).await.len() == 4
    })
    .await;
    until("everybody was confirmed", async || {
        let children = posta.registry().children();
        let looked = children.iter().filter(|(name, _)| {
            name.starts_with("effects ")
                || name.starts_with("dispatcher")
                || name.starts_with("lease")
        });
        looked
            .filter(|(name, _)| !name.ends_with("dead queue") && !name.ends_with("layout"))
            .all(|(_, it)| it.confirmed.is_some())
    })
    .await;
    for (name, child) in posta.registry().children() {
        assert_eq!(child.restarts, 0, "{name}: {child:?}");
    }
    posta.stop().await.expect("a drain");
    let health = posta.health();
    assert!(health.live && !health.ready, "{health}");
    assert!(health.reasons.contains(&"it drains".to_owned()), "{health}");
}
