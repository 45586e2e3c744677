//! Posta: an actor-based message runtime for services that keep their state in a SQL database.
//!
//! A message leaves if and only if the transaction that wrote it committed (the outbox), and its
//! effect on the receiving side happens once, however often it is delivered (the inbox). The words
//! used here, one meaning each, and the guarantees with their tests stand in `docs/guarantees.md`
//! beside this crate.
//!
//! What becomes of a message that fails, at either end, whose policy decides it, what an operator
//! does, and every state between: [`dead_letter`].
//!
//! What runs in a process, what happens when a part of it ends, and what Kubernetes or systemd see
//! of it: [`supervision`].

// Generated code names this crate `::posta`; inside the crate that name must resolve too.
extern crate self as posta;

pub mod broker;
pub mod consumer;
pub mod dead_letter;
pub mod inbox;
pub mod layout;
pub mod lease;
pub mod message;
pub mod operations;
pub mod outbox;
pub mod retry;
pub mod store;
pub mod supervision;
pub mod telemetry;

pub use broker::Broker;
pub use consumer::{Consumer, Data, DeliveryInfo, Failure, Handled, Handler};
pub use message::{Codec, Envelope, Json, Message, MessageId, OrderingKey, Slot};
pub use operations::{Builder, Operator, Posta};
pub use outbox::Outbox;
pub use posta_macros::{Consumer, Message};
#[cfg(feature = "postgres")]
pub use store::Postgres;
#[cfg(feature = "sqlite")]
pub use store::Sqlite;
pub use store::{Database, Tables, Tx};

/// For the code that the derive macros generate; no part of the interface.
#[doc(hidden)]
pub mod __private {
    pub use crate::consumer::generated::{NoType, TypeOf, function, is_same_type, method};
    pub use crate::message::generated::{KeyField, NoCodec, key_field};
}

/// The README's code compiles.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../../README.md")]
mod readme {}
