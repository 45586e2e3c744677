//! What can be a handler function: of a message by its derive, and given to a consumer by hand.

use std::rc::Rc;

use posta::{Consumer, Data, DeliveryInfo, Failure, Handled, Message, MessageId, Tx};
use serde::{Deserialize, Serialize};

type Db = posta::Sqlite;

struct Templates;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "no.arguments", handler = no_arguments, consumer = "notifications")]
struct NoArguments;

async fn no_arguments(message: NoArguments, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
    tx.enqueue(&message)?;
    Ok(())
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "four.arguments", handler = handlers::four, consumer = "notifications")]
struct FourArguments;

mod handlers {
    use super::{Data, Db, DeliveryInfo, Failure, FourArguments, MessageId, Templates, Tx};

    pub(super) async fn four(
        FourArguments: FourArguments,
        _: &mut Tx<'_, Db>,
        templates: Data<Templates>,
        id: MessageId,
        delivery: DeliveryInfo,
        _: Data<String>,
    ) -> Result<(), Failure> {
        let _ = (&*templates, id, delivery.attempt);
        Ok(())
    }
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "not.send", handler = not_send, consumer = "notifications")]
struct NotSend;

async fn not_send(_message: NotSend, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
    let here = Rc::new(1);
    std::future::ready(()).await;
    tx.enqueue(&NotSend)?;
    drop(here);
    Ok(())
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "any.database", handler = any_database, consumer = "c", database = posta::Sqlite)]
struct AnyDatabase;

async fn any_database<D: posta::Database>(
    message: AnyDatabase,
    tx: &mut Tx<'_, D>,
) -> Result<(), Failure> {
    tx.enqueue(&message)?;
    Ok(())
}

mod without_db {
    #[derive(::serde::Serialize, ::serde::Deserialize, ::posta::Message)]
    #[message(
        type = "without.db",
        handler = handle,
        consumer = "a-z.A_Z.0-9",
        database = ::posta::Sqlite
    )]
    pub(crate) struct WithoutDb;

    async fn handle(
        _: WithoutDb,
        _: &mut ::posta::Tx<'_, ::posta::Sqlite>,
    ) -> ::core::result::Result<(), ::posta::Failure> {
        ::core::result::Result::Ok(())
    }
}

async fn one(_: NoArguments, _: &mut Tx<'_, Db>, _: Data<Templates>) -> Result<(), Failure> {
    Ok(())
}

async fn two(
    _: NoArguments,
    _: &mut Tx<'_, Db>,
    _: MessageId,
    _: Data<Templates>,
) -> Result<(), Failure> {
    Ok(())
}

async fn three(
    _: NoArguments,
    _: &mut Tx<'_, Db>,
    _: DeliveryInfo,
    _: MessageId,
    _: MessageId,
) -> Result<(), Failure> {
    Ok(())
}

/// What a consumer says of itself.
fn shown(consumer: &Consumer<Db>) -> String {
    format!("{consumer:?}")
}

#[test]
fn a_message_names_its_handler_and_its_consumer() {
    assert_eq!(<NoArguments as Handled<Db>>::CONSUMER, "notifications");
    assert_eq!(
        <without_db::WithoutDb as Handled<Db>>::CONSUMER,
        "a-z.A_Z.0-9"
    );
    let consumer: Consumer<Db> = Consumer::named("notifications")
        .handles::<NoArguments>()
        .handles::<FourArguments>()
        .handles::<NotSend>();
    assert!(shown(&consumer).contains(r#"["four.arguments", "no.arguments", "not.send"]"#));
    let consumer: Consumer<Db> = Consumer::named("c").handles::<AnyDatabase>();
    assert!(shown(&consumer).contains(r#"["any.database"]"#));
}

#[test]
fn functions_of_any_number_of_arguments_can_be_given_by_hand() {
    let handlers: [Consumer<Db>; 4] = [
        Consumer::named("c").handle_with::<NoArguments, _>(no_arguments),
        Consumer::named("c").handle_with::<NoArguments, _>(one),
        Consumer::named("c").handle_with::<NoArguments, _>(two),
        Consumer::named("c").handle_with::<NoArguments, _>(three),
    ];
    for consumer in handlers {
        assert!(shown(&consumer).contains(r#"["no.arguments"]"#));
    }
}

#[test]
fn async_closures_can_be_given_by_hand() {
    let greeting = String::from("hello");
    let consumer: Consumer<Db> = Consumer::named("c")
        .handle_with::<NoArguments, _>(async |message: NoArguments, tx: &mut Tx<'_, Db>| {
            tx.enqueue(&message)?;
            Ok(())
        })
        .handle_with::<FourArguments, _>(
            async move |_: FourArguments, tx: &mut Tx<'_, Db>, id: MessageId| {
                let here = Rc::new((greeting.len(), id));
                std::future::ready(()).await;
                tx.enqueue(&NotSend)?;
                drop(here);
                Ok(())
            },
        );
    assert!(shown(&consumer).contains(r#"["four.arguments", "no.arguments"]"#));
}
