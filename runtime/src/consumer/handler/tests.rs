use std::sync::Mutex;

use diesel_async::AsyncConnection as _;
use serde::{Deserialize, Serialize};

use super::*;
use crate::consumer::{Consumer, Data, DeliveryInfo, Handled};
use crate::message::{MessageId, MessageType};
use crate::outbox::{Context, Outbox};
use crate::store::{Sqlite, Tables};

type Db = Sqlite;

#[derive(Debug, Serialize, Deserialize, crate::Message)]
#[message(type = "document.signed", handler = notify, consumer = "notifications")]
struct DocumentSigned {
    document_id: u64,
}

/// What the handlers saw.
type Seen = Mutex<Vec<String>>;

async fn notify(
    message: DocumentSigned,
    tx: &mut Tx<'_, Db>,
    seen: Data<Seen>,
    id: MessageId,
    delivery: DeliveryInfo,
) -> Result<(), Failure> {
    tx.enqueue(&message)?;
    let line = format!(
        "{} {} {}",
        message.document_id,
        id == delivery.id,
        delivery.attempt
    );
    seen.lock().unwrap().push(line);
    Ok(())
}

#[derive(crate::Consumer)]
#[consumer(name = "notifications", handles(DocumentSigned => on_signed))]
struct Notifications {
    greeting: &'static str,
}

impl Notifications {
    async fn on_signed(
        &self,
        message: DocumentSigned,
        _tx: &mut Tx<'_, Db>,
        seen: Data<Seen>,
    ) -> Result<(), Failure> {
        let line = format!("{} {}", self.greeting, message.document_id);
        seen.lock().unwrap().push(line);
        Ok(())
    }
}

fn state() -> State {
    let mut state = State::default();
    state.insert(Seen::default());
    state
}

fn seen(state: &State) -> Vec<String> {
    let seen = <Data<Seen> as Extract>::extract(state, &envelope("{}"), 1).unwrap();
    seen.lock().unwrap().clone()
}

fn envelope(payload: &'static str) -> Envelope {
    let message_type = MessageType::from_static("document.signed").unwrap();
    Envelope::builder(message_type, payload).build().unwrap()
}

/// Calls a handler on a connection on which nothing is stored.
async fn handle(handler: &Handler<Db>, payload: &'static str, state: &State) -> HandleOutcome {
    let mut connection = <Db as Database>::Connection::establish(":memory:")
        .await
        .unwrap();
    let outbox = Outbox::new(Tables::default());
    let mut tx = Tx::new(&mut connection, &outbox, Context::default());
    let outcome = handler.handle(&envelope(payload), 3, state, &mut tx).await;
    HandleOutcome {
        outcome,
        tx: format!("{tx:?}"),
    }
}

struct HandleOutcome {
    outcome: Result<(), HandleError>,
    tx: String,
}

#[tokio::test]
async fn a_function_gets_the_message_the_transaction_and_its_arguments() {
    let state = state();
    let handled = handle(&DocumentSigned::handler(), r#"{"document_id": 7}"#, &state).await;
    handled.outcome.unwrap();
    assert_eq!(seen(&state), ["7 true 3"]);
    assert!(handled.tx.contains("enqueued: 1"), "{}", handled.tx);
}

#[tokio::test]
async fn a_method_gets_its_consumer() {
    let state = state();
    let consumer: Consumer<Db> = Notifications { greeting: "hello" }.into();
    let handler = &consumer.handlings["document.signed"].handler;
    handle(handler, r#"{"document_id": 7}"#, &state)
        .await
        .outcome
        .unwrap();
    assert_eq!(seen(&state), ["hello 7"]);
}

#[tokio::test]
async fn a_payload_that_is_no_message_never_reaches_the_handler() {
    let state = state();
    for payload in ["", "{}", "null", r#"{"document_id": "seven"}"#, "\u{feff}{"] {
        let handled = handle(&DocumentSigned::handler(), payload, &state).await;
        assert!(
            matches!(handled.outcome, Err(HandleError::Decode(_))),
            "{payload:?}"
        );
    }
    assert!(seen(&state).is_empty());
}

#[tokio::test]
async fn state_that_nobody_gave_is_found_before_any_message_comes() {
    let handler = DocumentSigned::handler();
    let missing = handler.check(&State::default()).unwrap_err().to_string();
    assert!(missing.contains("Mutex"), "{missing}");
    let handled = handle(&handler, r#"{"document_id": 7}"#, &State::default()).await;
    assert!(matches!(handled.outcome, Err(HandleError::Extract(_))));
    assert!(handler.check(&state()).is_ok());
}

#[tokio::test]
async fn any_error_in_a_handler_is_its_failure() {
    let handler =
        Handler::function::<DocumentSigned, _, _>(async |_: DocumentSigned, _: &mut Tx<'_, Db>| {
            "seven".parse::<u64>()?;
            Ok(())
        });
    let handled = handle(&handler, r#"{"document_id": 7}"#, &state()).await;
    let Err(HandleError::Failed(failure)) = handled.outcome else {
        panic!("no failure")
    };
    assert!(failure.source().is::<std::num::ParseIntError>());
}

#[tokio::test]
async fn a_panic_in_a_handler_is_an_outcome_with_its_words() {
    async fn outcome(words: fn()) -> String {
        let handler = Handler::function::<DocumentSigned, _, _>(
            async move |_: DocumentSigned, _: &mut Tx<'_, Db>| {
                words();
                Ok(())
            },
        );
        let handled = handle(&handler, r#"{"document_id": 7}"#, &state()).await;
        handled.outcome.unwrap_err().to_string()
    }
    // Where it was, too, once a runtime has put its panic hook in.
    crate::supervision::panic::install();
    for (words, text) in [
        ((|| panic!("lost")) as fn(), "lost"),
        (|| panic!("{} lost", 1), "1 lost"),
        (|| std::panic::panic_any(7), "a value that is no text"),
    ] {
        let outcome = outcome(words).await;
        let expected = format!("the handler panicked: {text} (at ");
        assert!(outcome.starts_with(&expected), "{outcome}");
        assert!(outcome.contains("handler/tests.rs:"), "{outcome}");
    }
}
