use posta::{Consumer, Failure, Tx};

type Db = posta::Sqlite;

#[derive(Consumer)]
#[consumer(name = "notifications", handles(Document => on_signed))]
struct Notifications;

struct Document;

impl Notifications {
    async fn on_signed(&self, _message: Document, _tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
