//! The contract between the three parties: what they say to each other, and nothing of how they
//! work.
//!
//! Every message is keyed by its order, so each party handles what concerns one order in the order
//! in which it was said. `revision` counts an order's events from 1; nobody needs it for the order
//! of things, and everybody checks it, to show that it holds.

use posta::Message;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An order was placed: revision 1.
#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(type = "order.placed", version = 1, key = order_id)]
pub(crate) struct OrderPlaced {
    pub(crate) order_id: Uuid,
    pub(crate) item: String,
    pub(crate) quantity: i64,
    pub(crate) unit_cents: i64,
}

/// An order's quantity was changed.
#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(type = "order.changed", version = 1, key = order_id)]
pub(crate) struct OrderChanged {
    pub(crate) order_id: Uuid,
    pub(crate) revision: i64,
    pub(crate) quantity: i64,
}

/// An order was cancelled; its last event.
#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(type = "order.cancelled", version = 1, key = order_id)]
pub(crate) struct OrderCancelled {
    pub(crate) order_id: Uuid,
    pub(crate) revision: i64,
}

/// Stock was reserved for an order as of this revision.
#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(type = "stock.reserved", version = 1, key = order_id)]
pub(crate) struct StockReserved {
    pub(crate) order_id: Uuid,
    pub(crate) revision: i64,
}

/// There is not enough stock for an order as of this revision: nothing is reserved for it.
#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(type = "stock.short", version = 1, key = order_id)]
pub(crate) struct StockShort {
    pub(crate) order_id: Uuid,
    pub(crate) revision: i64,
}

/// An invoice was issued for an order as of this revision; it replaces the one before.
#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(type = "invoice.issued", version = 1, key = order_id)]
pub(crate) struct InvoiceIssued {
    pub(crate) order_id: Uuid,
    pub(crate) revision: i64,
    pub(crate) cents: i64,
}
