//! What can be a consumer struct.

use std::rc::Rc;

use posta::{Consumer, Data, DeliveryInfo, Failure, Message, MessageId, Tx};
use serde::{Deserialize, Serialize};

type Db = posta::Sqlite;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed")]
struct DocumentSigned {
    document_id: u64,
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.revoked")]
struct DocumentRevoked;

#[derive(Consumer)]
#[consumer(
    name = "notifications",
    handles(DocumentSigned => on_signed, self::DocumentRevoked => on_revoked,),
    partitions = 64,
)]
struct Notifications {
    greeting: String,
}

impl Notifications {
    async fn on_signed(&self, message: DocumentSigned, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
        let here = Rc::new(format!("{} {}", self.greeting, message.document_id));
        std::future::ready(()).await;
        tx.enqueue(&DocumentRevoked)?;
        drop(here);
        Ok(())
    }

    async fn on_revoked(
        &self,
        DocumentRevoked: DocumentRevoked,
        _tx: &mut Tx<'_, Db>,
        _templates: Data<String>,
        _id: MessageId,
        _delivery: DeliveryInfo,
        _recipients: Data<Vec<String>>,
    ) -> Result<(), Failure> {
        Ok(())
    }
}

trait Templates: Send + Sync + 'static {
    fn render(&self) -> String;
}

struct Plain;

impl Templates for Plain {
    fn render(&self) -> String {
        "plain".to_owned()
    }
}

#[derive(Consumer)]
#[consumer(name = "generic", handles(DocumentSigned => on_signed), database = posta::Sqlite)]
struct Generic<T: Templates, const COPIES: usize> {
    templates: T,
}

impl<T: Templates, const COPIES: usize> Generic<T, COPIES> {
    async fn on_signed(&self, _: DocumentSigned, _: &mut Tx<'_, Db>) -> Result<(), Failure> {
        let _ = self.templates.render().repeat(COPIES);
        Ok(())
    }
}

#[derive(Consumer)]
#[consumer(name = "unit", handles(DocumentSigned => on_signed))]
struct Unit;

impl Unit {
    async fn on_signed<D: posta::Database>(
        &self,
        message: DocumentSigned,
        tx: &mut Tx<'_, D>,
    ) -> Result<(), Failure> {
        tx.enqueue(&message)?;
        Ok(())
    }
}

/// Takes a consumer as the builder does.
fn shown(consumer: impl Into<Consumer<Db>>) -> String {
    format!("{:?}", consumer.into())
}

#[test]
fn a_consumer_struct_is_taken_where_a_consumer_is() {
    let text = shown(Notifications {
        greeting: "hello".to_owned(),
    });
    assert!(text.contains(r#"name: "notifications""#), "{text}");
    assert!(text.contains("partitions: 64"), "{text}");
    assert!(
        text.contains(r#"["document.revoked", "document.signed"]"#),
        "{text}"
    );
}

#[test]
fn partitions_that_are_not_written_are_the_default() {
    let default = format!("partitions: {}", posta::consumer::PARTITIONS_DEFAULT);
    assert!(shown(Unit).contains(&default));
}

#[test]
fn a_generic_struct_is_a_consumer_too() {
    assert!(shown(Generic::<Plain, 2> { templates: Plain }).contains(r#"name: "generic""#));
}
