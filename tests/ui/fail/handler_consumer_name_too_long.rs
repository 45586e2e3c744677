use posta::{Failure, Message, Tx};
use serde::{Deserialize, Serialize};

type Db = posta::Sqlite;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", handler = notify, consumer = "notifications.notifications.notifications.notifications.notifications.notifications.notifications.notifications.")]
pub struct DocumentSigned {
    pub document_id: u64,
}

async fn notify(_message: DocumentSigned, _tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
