use posta::operations::operator::OperatorErrorKind;
use posta::store::{LetterId, LetterState};

use super::bug::{BILLING, Bug, ada, invoice, service, until_dead, until_letter};
use super::given::{bury_numbers, operator, park};
use super::on_both_databases;
use crate::world::effects::effects_of;
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

mod combinations {
    use super::*;

    on_every_combination!(a_skipped_letter_lets_its_key_go_on_and_can_be_replayed_later);

    async fn a_skipped_letter_lets_its_key_go_on_and_can_be_replayed_later<D: TestDatabase>(
        broker: BrokerKind,
    ) {
        super::a_skipped_letter_lets_its_key_go_on_and_can_be_replayed_later::<D>(broker).await;
    }
}

on_both_databases!(
    a_discarded_letter_lets_its_key_go_on_and_can_be_restored,
    all_of_the_letters_are_ended_or_none,
);

/// The numbers that took effect, in order.
async fn numbers<D: TestDatabase>(store: &D::Store) -> Vec<i64> {
    let effects = effects_of::<D>(store, BILLING).await;
    effects.iter().map(|effect| effect.number).collect()
}

async fn a_skipped_letter_lets_its_key_go_on_and_can_be_replayed_later<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let (store, bug) = (world.store(), Bug::default());
    let posta = service(&world, &bug).await;
    invoice(&posta, 1, 5).await;
    let operator = ada(&posta);
    let dead = until_dead(&operator, 1, 4).await.remove(0);
    operator
        .skip(&[dead.id], "the others cannot wait")
        .await
        .unwrap();
    until("the successors are handled", async || {
        numbers::<D>(&store).await.len() == 4
    })
    .await;
    assert_eq!(numbers::<D>(&store).await, [1, 2, 3, 4]);
    let shown = operator.show(dead.id, 0).await.unwrap().letter;
    assert_eq!(
        (shown.state, shown.parked, shown.successors),
        (LetterState::Dead, false, 0)
    );
    let again = operator.skip(&[dead.id], "again").await.unwrap_err();
    assert_eq!(
        again.to_string(),
        format!(
            "letter {} is dead; it would have to be dead and parked",
            dead.id
        )
    );
    bug.mend();
    operator.replay(dead.id, "late").await.unwrap();
    until_letter(&operator, dead.id, LetterState::Replayed).await;
    assert_eq!(numbers::<D>(&store).await, [1, 2, 3, 4, 0]);
    posta.stop().await.unwrap();
}

async fn a_discarded_letter_lets_its_key_go_on_and_can_be_restored<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let (store, bug) = (world.store(), Bug::default());
    let posta = service(&world, &bug).await;
    invoice(&posta, 1, 5).await;
    let operator = ada(&posta);
    let dead = until_dead(&operator, 1, 4).await.remove(0);
    operator
        .discard(&[dead.id], "cancelled by the customer")
        .await
        .unwrap();
    until("the successors are handled", async || {
        numbers::<D>(&store).await.len() == 4
    })
    .await;
    let discarded = operator.show(dead.id, 0).await.unwrap().letter;
    assert_eq!(discarded.state, LetterState::Discarded);
    assert!(discarded.ended_at.is_some() && !discarded.parked);
    let refused = operator.replay(dead.id, "perhaps").await.unwrap_err();
    assert_eq!(refused.kind(), OperatorErrorKind::State);
    bug.mend();
    operator.restore(&[dead.id], "it was not").await.unwrap();
    operator.replay(dead.id, "now").await.unwrap();
    until_letter(&operator, dead.id, LetterState::Replayed).await;
    assert_eq!(numbers::<D>(&store).await, [1, 2, 3, 4, 0]);
    let record = operator.record(Some(dead.id), 10).await.unwrap();
    let actions: Vec<&str> = record
        .iter()
        .map(|action| action.what.action.as_str())
        .collect();
    assert_eq!(actions, ["replay", "restore", "discard"]);
    posta.stop().await.unwrap();
}

async fn all_of_the_letters_are_ended_or_none<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let parked = park::<D>(&store, "p", 1).await;
    let plain = bury_numbers::<D>(&store, 1, 1).await[0];
    let operator = operator(&world, "ada");
    let missing = LetterId(plain.0 + 1);
    let refused = operator
        .discard(&[plain, parked, missing], "all")
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), OperatorErrorKind::NotFound);
    let refused = operator.skip(&[plain, parked], "all").await.unwrap_err();
    assert_eq!(refused.kind(), OperatorErrorKind::State);
    let refused = operator.restore(&[plain], "all").await.unwrap_err();
    assert_eq!(refused.kind(), OperatorErrorKind::State);
    for letters in [Vec::new(), (0..1_001).map(LetterId).collect()] {
        let refused = operator.discard(&letters, "all").await.unwrap_err();
        assert_eq!(refused.kind(), OperatorErrorKind::Argument);
    }
    assert!(operator.record(None, 10).await.unwrap().is_empty());
    assert!(operator.show(parked, 0).await.unwrap().letter.parked);
    // Twice the same is once.
    operator
        .discard(&[plain, parked, plain], "all")
        .await
        .unwrap();
    assert_eq!(operator.record(None, 10).await.unwrap().len(), 2);
}
