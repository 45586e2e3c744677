use posta::{Consumer, Failure, Message, Tx};
use serde::{Deserialize, Serialize};

type Db = posta::Sqlite;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed")]
pub struct DocumentSigned;

#[derive(Consumer)]
#[consumer(name = "notifications", handles(DocumentSigned => on_signed))]
struct Notifications {
    _templates: std::rc::Rc<String>,
}

impl Notifications {
    async fn on_signed(
        &self,
        _message: DocumentSigned,
        _tx: &mut Tx<'_, Db>,
    ) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
