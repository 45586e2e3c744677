//! The message, and what the bank receives in the story.

use posta::Message;
use serde::{Deserialize, Serialize};

/// Whose accounts there are: the story's three keys.
pub(crate) const ACCOUNTS: [&str; 3] = ["anna", "bert", "cleo"];

/// The bank received a posting for an account.
///
/// Keyed by the account, so that the postings of one account are booked in order, whatever happens
/// to one of them. Three tries, short pauses: a story must not take an hour, as the default would.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Message)]
#[message(type = "posting.received", version = 1, key = account)]
#[message(retry(attempts = 3, base = "50ms", cap = "500ms"))]
pub(crate) struct PostingReceived {
    pub(crate) account: String,
    /// The account's postings are numbered from 1. Nobody needs it for the order of things; the
    /// books check it, to show that the order holds.
    pub(crate) number: i64,
    /// As the sender wrote it.
    pub(crate) amount: String,
}

impl PostingReceived {
    pub(crate) fn new(account: &str, number: i64, amount: &str) -> Self {
        Self {
            account: account.to_owned(),
            number,
            amount: amount.to_owned(),
        }
    }
}

/// Ten postings for each account, in turn. The fourth of bert's has an amount that the first
/// version of the handler cannot read.
pub(crate) fn first() -> Vec<PostingReceived> {
    turns(1..=10, |account, number| match (account, number) {
        ("bert", 4) => "1,250.00".to_owned(),
        _ => format!("{number}.50"),
    })
}

/// One more for each account.
pub(crate) fn more() -> Vec<PostingReceived> {
    turns(11..=11, |_, _| "20.00".to_owned())
}

/// Three for cleo, of which the first has no amount: no version of the handler can book it.
pub(crate) fn without_amount() -> Vec<PostingReceived> {
    let amounts = ["twelve", "13.50", "14.50"];
    let numbered = (12..).zip(amounts);
    numbered
        .map(|(number, amount)| PostingReceived::new("cleo", number, amount))
        .collect()
}

fn turns(
    numbers: std::ops::RangeInclusive<i64>,
    amount: impl Fn(&str, i64) -> String,
) -> Vec<PostingReceived> {
    let of_all = |number| {
        ACCOUNTS.map(|account| PostingReceived::new(account, number, &amount(account, number)))
    };
    numbers.flat_map(of_all).collect()
}
