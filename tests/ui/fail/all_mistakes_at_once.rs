use posta::{Failure, Message, Tx};
use serde::{Deserialize, Serialize};

type Db = posta::Sqlite;

#[derive(Serialize, Deserialize, Message)]
#[message(version = 0, keyy = document_id, key = document, consumer = "", handler = "notify")]
pub struct DocumentSigned {
    pub document_id: u64,
}

async fn notify(_message: DocumentSigned, _tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
