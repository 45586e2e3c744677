use posta::{Consumer, Message};
use serde::{Deserialize, Serialize};

type Db = posta::Sqlite;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed")]
pub struct DocumentSigned;

fn main() {
    let _: Consumer<Db> = Consumer::named("notifications").handles::<DocumentSigned>();
}
