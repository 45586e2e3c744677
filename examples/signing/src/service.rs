//! The service itself: documents are signed, and each signature is notified exactly once and in
//! order.
//!
//! ```text
//! sign()    documents, signatures, outbox: one transaction          ──► document.signed
//! notify()  consumer "notifications": inbox, feeds, notifications   ──► notification.created
//! post()    consumer "mailbox": inbox, mailboxes, mails
//! ```
//!
//! Everything is keyed by the document: what happens to one document takes effect in the order in
//! which it happened, whatever crashes; different documents do not wait for each other.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use posta::operations::TransactionError;
use posta::outbox::EnqueueError;
use posta::{Consumer, Failure, Message, MessageId, Tx};
use serde::{Deserialize, Serialize};

// `posta::Sqlite` or `posta::Postgres`: a service with one database writes `type Db = …` here.
use super::Db;

diesel::table! {
    documents (id) {
        id -> BigInt,
        signatures -> BigInt,
    }
}
diesel::table! {
    signatures (request_id) {
        request_id -> BigInt,
        document_id -> BigInt,
        number -> BigInt,
        signed_at -> BigInt,
    }
}
diesel::table! {
    feeds (document_id) {
        document_id -> BigInt,
        entries -> BigInt,
    }
}
diesel::table! {
    notifications (document_id, entry) {
        document_id -> BigInt,
        entry -> BigInt,
        request_id -> BigInt,
        number -> BigInt,
        written_at -> BigInt,
    }
}
diesel::table! {
    mailboxes (document_id) {
        document_id -> BigInt,
        mails -> BigInt,
    }
}
diesel::table! {
    mails (document_id, place) {
        document_id -> BigInt,
        place -> BigInt,
        entry -> BigInt,
        request_id -> BigInt,
    }
}

/// Somebody has signed: the `number`-th signature of the document.
#[derive(Clone, Debug, Queryable, Serialize, Deserialize, Message)]
#[message(
    type = "document.signed",
    version = 1,
    key = document_id,
    handler = notify,
    consumer = "notifications"
)]
pub(crate) struct DocumentSigned {
    pub(crate) document_id: i64,
    pub(crate) request_id: i64,
    pub(crate) number: i64,
}

/// A signature stands in the document's feed, as its `entry`-th entry.
#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(
    type = "notification.created",
    version = 1,
    key = document_id,
    handler = post,
    consumer = "mailbox"
)]
pub(crate) struct NotificationCreated {
    pub(crate) document_id: i64,
    pub(crate) request_id: i64,
    pub(crate) entry: i64,
}

/// Signs: the document counts one more signature, the signature is written, and `document.signed`
/// is enqueued, all in the transaction that is handed in. A request is signed once: again is
/// [`SignError::AlreadySigned`], and nothing changes.
pub(crate) async fn sign(
    tx: &mut Tx<'_, Db>,
    document_id: i64,
    request_id: i64,
) -> Result<MessageId, SignError> {
    // The document's row is locked from here to the commit, so signatures are numbered in the order
    // of their commits.
    let number: i64 = diesel::insert_into(documents::table)
        .values((documents::id.eq(document_id), documents::signatures.eq(1)))
        .on_conflict(documents::id)
        .do_update()
        .set(documents::signatures.eq(documents::signatures + 1))
        .returning(documents::signatures)
        .get_result(tx)
        .await?;
    let written = diesel::insert_into(signatures::table)
        .values((
            signatures::request_id.eq(request_id),
            signatures::document_id.eq(document_id),
            signatures::number.eq(number),
        ))
        .on_conflict_do_nothing()
        .execute(tx)
        .await?;
    if written == 0 {
        return Err(SignError::AlreadySigned);
    }
    let message = DocumentSigned {
        document_id,
        request_id,
        number,
    };
    Ok(tx.enqueue(&message)?)
}

/// Writes the notification of one signature into the document's feed, and says so.
async fn notify(message: DocumentSigned, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
    let entry: i64 = diesel::insert_into(feeds::table)
        .values((
            feeds::document_id.eq(message.document_id),
            feeds::entries.eq(1),
        ))
        .on_conflict(feeds::document_id)
        .do_update()
        .set(feeds::entries.eq(feeds::entries + 1))
        .returning(feeds::entries)
        .get_result(tx)
        .await?;
    diesel::insert_into(notifications::table)
        .values((
            notifications::document_id.eq(message.document_id),
            notifications::entry.eq(entry),
            notifications::request_id.eq(message.request_id),
            notifications::number.eq(message.number),
        ))
        .execute(tx)
        .await?;
    tx.enqueue(&NotificationCreated {
        document_id: message.document_id,
        request_id: message.request_id,
        entry,
    })?;
    Ok(())
}

/// Puts a notification into the mailbox of the document's owner.
async fn post(message: NotificationCreated, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
    let place: i64 = diesel::insert_into(mailboxes::table)
        .values((
            mailboxes::document_id.eq(message.document_id),
            mailboxes::mails.eq(1),
        ))
        .on_conflict(mailboxes::document_id)
        .do_update()
        .set(mailboxes::mails.eq(mailboxes::mails + 1))
        .returning(mailboxes::mails)
        .get_result(tx)
        .await?;
    diesel::insert_into(mails::table)
        .values((
            mails::document_id.eq(message.document_id),
            mails::place.eq(place),
            mails::entry.eq(message.entry),
            mails::request_id.eq(message.request_id),
        ))
        .execute(tx)
        .await?;
    Ok(())
}

/// The consumer that writes notifications.
pub(crate) fn notifications_consumer() -> Consumer<Db> {
    Consumer::named("notifications").handles::<DocumentSigned>()
}

/// The consumer that fills mailboxes.
pub(crate) fn mailbox_consumer() -> Consumer<Db> {
    Consumer::named("mailbox").handles::<NotificationCreated>()
}

/// Why a signing did not commit.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignError {
    /// The request has been signed before.
    #[error("the request has been signed already")]
    AlreadySigned,
    /// A statement failed.
    #[error("a statement of the signing failed")]
    Statement(#[from] diesel::result::Error),
    /// The message was refused.
    #[error(transparent)]
    Enqueue(#[from] EnqueueError),
    /// The transaction around it failed.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
}
