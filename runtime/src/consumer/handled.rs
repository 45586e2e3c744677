use super::Handler;
use crate::message::Message;
use crate::store::Database;

/// A message whose handler is named beside it: `#[message(…, handler = notify, consumer =
/// "notifications")]`.
#[diagnostic::on_unimplemented(
    message = "the message `{Self}` names no handler for this database",
    note = "name one with `#[message(…, handler = …, consumer = \"…\")]`, or give one with `.handle_with::<{Self}, _>(…)`"
)]
pub trait Handled<D: Database>: Message {
    /// The consumer that the handler belongs to.
    const CONSUMER: &'static str;

    /// The handler.
    fn handler() -> Handler<D>;
}
