//! Shared state as a handler's argument.

use posta::{Consumer, Data, Failure, Message, Tx};
use serde::{Deserialize, Serialize};

type Db = posta::Sqlite;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", handler = notify, consumer = "notifications")]
struct DocumentSigned;

struct Templates {
    greeting: String,
}

async fn notify(
    _: DocumentSigned,
    _: &mut Tx<'_, Db>,
    templates: Data<Templates>,
    recipients: Data<Vec<String>>,
) -> Result<(), Failure> {
    let _ = recipients
        .iter()
        .map(|recipient| format!("{} {recipient}", templates.greeting));
    Ok(())
}

#[test]
fn a_consumer_gives_its_handlers_the_state_that_they_ask_for() {
    let consumer: Consumer<Db> = Consumer::named("notifications")
        .handles::<DocumentSigned>()
        .data(Templates {
            greeting: "hello".to_owned(),
        })
        .data(vec!["a@example.org".to_owned()]);
    assert!(format!("{consumer:?}").contains("document.signed"));
}
