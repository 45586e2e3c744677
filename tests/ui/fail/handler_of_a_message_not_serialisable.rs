use posta::{Failure, Message, Tx};

type Db = posta::Sqlite;

#[derive(Message)]
#[message(type = "document.signed", handler = notify, consumer = "notifications")]
pub struct DocumentSigned {
    pub document_id: u64,
}

async fn notify(_message: DocumentSigned, _tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
