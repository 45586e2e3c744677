use std::collections::{HashMap, HashSet};

use diesel::Queryable;

use crate::ledger::Ledger;

/// What the three parties have in their tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    pub(crate) orders: Vec<Order>,
    pub(crate) stock: Vec<Stock>,
    pub(crate) reservations: Vec<Reservation>,
    pub(crate) accounts: Vec<Account>,
    pub(crate) invoices: Vec<Invoice>,
}

/// An order in the shop.
#[derive(Clone, Debug, Queryable)]
pub(crate) struct Order {
    pub(crate) order_id: String,
    pub(crate) revision: i64,
    pub(crate) cancelled: bool,
    pub(crate) stock: String,
    pub(crate) stock_revision: i64,
    pub(crate) invoice_cents: Option<i64>,
    pub(crate) invoice_revision: i64,
    pub(crate) answers: i64,
    pub(crate) misordered: i64,
}

/// An item in the inventory.
#[derive(Clone, Copy, Debug, Queryable)]
pub(crate) struct Stock {
    pub(crate) initial: i64,
    pub(crate) available: i64,
}

/// What the inventory has reserved for an order.
#[derive(Clone, Debug, Queryable)]
pub(crate) struct Reservation {
    pub(crate) order_id: String,
    pub(crate) quantity: i64,
    pub(crate) revision: i64,
    pub(crate) misordered: i64,
}

/// An order in billing.
#[derive(Clone, Debug, Queryable)]
pub(crate) struct Account {
    pub(crate) order_id: String,
    pub(crate) revision: i64,
    pub(crate) misordered: i64,
}

/// An invoice.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Queryable)]
pub(crate) struct Invoice {
    pub(crate) order_id: String,
    pub(crate) revision: i64,
    pub(crate) cents: i64,
}

impl Order {
    /// Its events that inventory and billing each answer once: all but the cancellation.
    fn answered(&self) -> i64 {
        self.revision - i64::from(self.cancelled)
    }

    fn is_settled(&self) -> bool {
        self.stock_revision == self.answered() && self.invoice_revision == self.answered()
    }
}

impl Books {
    /// Sums up, and compares each party's books with the others'.
    pub(crate) fn ledger(&self) -> Ledger {
        let orders = &self.orders;
        let count =
            |holds: fn(&Order) -> bool| orders.iter().filter(|order| holds(order)).count() as i64;
        let sum = |of: fn(&Order) -> i64| orders.iter().map(of).sum::<i64>();
        let answered = sum(Order::answered);
        let unique: HashSet<&Invoice> = self.invoices.iter().collect();
        Ledger {
            orders: orders.len() as i64,
            changed: sum(|order| order.answered() - 1),
            cancelled: count(|order| order.cancelled),
            reserved: count(|order| !order.cancelled && order.stock == "reserved"),
            short: count(|order| !order.cancelled && order.stock == "short"),
            invoiced: count(|order| !order.cancelled && order.invoice_cents.is_some()),
            invoiced_cents: sum(|order| {
                order
                    .invoice_cents
                    .filter(|_| !order.cancelled)
                    .unwrap_or(0)
            }),
            waiting: self.waiting(),
            doubled: (sum(|order| order.answers) - 2 * answered).max(0)
                + (self.invoices.len() - unique.len()) as i64,
            misordered: sum(|order| order.misordered)
                + self
                    .reservations
                    .iter()
                    .map(|row| row.misordered)
                    .sum::<i64>()
                + self.accounts.iter().map(|row| row.misordered).sum::<i64>(),
            disagreements: self.disagreements(),
        }
    }

    /// Orders of which some party has not heard everything yet.
    fn waiting(&self) -> i64 {
        let inventory: HashMap<&str, i64> = self
            .reservations
            .iter()
            .map(|row| (row.order_id.as_str(), row.revision))
            .collect();
        let billing: HashMap<&str, i64> = self
            .accounts
            .iter()
            .map(|row| (row.order_id.as_str(), row.revision))
            .collect();
        let settled = |order: &&Order| {
            let heard = |revisions: &HashMap<&str, i64>| {
                revisions.get(order.order_id.as_str()) == Some(&order.revision)
            };
            order.is_settled() && heard(&inventory) && heard(&billing)
        };
        self.orders.iter().filter(|order| !settled(order)).count() as i64
    }

    /// What one party's books say against another's, in words; while messages are under way they
    /// may differ.
    fn disagreements(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut same = |what: &str, one: i64, other: i64| {
            if one != other {
                found.push(format!("{what}: {one} against {other}"));
            }
        };
        let events = self.orders.iter().map(Order::answered).sum::<i64>();
        same(
            "events in the shop, invoices",
            events,
            self.invoices.len() as i64,
        );
        let answers = self.orders.iter().map(|order| order.answers).sum::<i64>();
        same(
            "answers to be had, answers in the shop",
            2 * events,
            answers,
        );
        let taken = self
            .stock
            .iter()
            .map(|row| row.initial - row.available)
            .sum::<i64>();
        let reserved = self
            .reservations
            .iter()
            .map(|row| row.quantity)
            .sum::<i64>();
        same("pieces taken from stock, pieces reserved", taken, reserved);
        let reserved: HashSet<&str> = self.reserved_orders().collect();
        let in_shop = self
            .orders
            .iter()
            .filter(|order| !order.cancelled && order.stock == "reserved");
        let both = in_shop
            .clone()
            .filter(|order| reserved.contains(order.order_id.as_str()));
        same(
            "orders reserved in the inventory, in the shop",
            reserved.len() as i64,
            in_shop.count() as i64,
        );
        same(
            "orders reserved in the inventory, in both",
            reserved.len() as i64,
            both.count() as i64,
        );
        found
    }

    fn reserved_orders(&self) -> impl Iterator<Item = &str> {
        let held = self.reservations.iter().filter(|row| row.quantity > 0);
        held.map(|row| row.order_id.as_str())
    }
}
