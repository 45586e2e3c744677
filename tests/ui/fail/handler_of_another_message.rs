use posta::{Failure, Message, Tx};
use serde::{Deserialize, Serialize};

type Db = posta::Sqlite;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", handler = notify, consumer = "notifications")]
pub struct DocumentSigned {
    pub document_id: u64,
}

async fn notify(_message: DocumentRevoked, _tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
    Ok(())
}

pub struct DocumentRevoked;

fn main() {}
