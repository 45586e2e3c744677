use posta::{Consumer, Failure, Message, Tx};
use serde::{Deserialize, Serialize};

type Db = posta::Sqlite;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", keyy = document_id, handler = notify, consumer = "notifications")]
pub struct DocumentSigned {
    pub document_id: u64,
}

async fn notify(_message: DocumentSigned, _tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
    Ok(())
}

async fn forward(message: DocumentSigned, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
    tx.enqueue(&message)?;
    Ok(())
}

fn main() {
    let _: Consumer<Db> = Consumer::named("notifications").handles::<DocumentSigned>();
    let _: Consumer<Db> = Consumer::named("forwarding").handle_with::<DocumentSigned, _>(forward);
}
