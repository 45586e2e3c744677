use posta::{Consumer, Failure, Message, Tx};
use serde::{Deserialize, Serialize};

type Db = posta::Sqlite;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed")]
pub struct DocumentSigned;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.revoked")]
pub struct DocumentRevoked;

#[derive(Consumer)]
#[consumer(name = "notifications", handles(DocumentSigned => on_signed, DocumentSigned => on_revoked))]
struct Notifications;

impl Notifications {
    async fn on_signed(
        &self,
        _message: DocumentSigned,
        _tx: &mut Tx<'_, Db>,
    ) -> Result<(), Failure> {
        Ok(())
    }

    async fn on_revoked(
        &self,
        _message: DocumentRevoked,
        _tx: &mut Tx<'_, Db>,
    ) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
