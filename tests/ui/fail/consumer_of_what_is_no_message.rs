use posta::{Consumer, Failure, Message, Tx};
use serde::{Deserialize, Serialize};

type Db = posta::Sqlite;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed")]
pub struct DocumentSigned;

struct Document;

#[derive(Consumer)]
#[consumer(name = "notifications", handles(DocumentSigned => on_signed, Document => on_document))]
struct Notifications;

impl Notifications {
    async fn on_signed(
        &self,
        _message: DocumentSigned,
        _tx: &mut Tx<'_, Db>,
    ) -> Result<(), Failure> {
        Ok(())
    }

    async fn on_document(&self, _message: Document, _tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
