use posta::{Consumer, Failure, Message, Tx};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed")]
pub struct DocumentSigned;

#[derive(Consumer)]
#[consumer(name = "notifications", handles(DocumentSigned => on_signed))]
struct Notifications;

impl Notifications {
    async fn on_signed(
        &self,
        _message: DocumentSigned,
        _tx: &mut Tx<'_, posta::Sqlite>,
    ) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
