//! What a message type can say of its retry policy.

use std::time::Duration;

use posta::Message;
use posta::retry::{AfterDeadLetter, RetryOverride};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(
    type = "everything",
    key = id,
    retry(attempts = 1000, immediate = 999, base = "250ms", cap = "24h",),
    deadline = "29m",
    after_dead_letter = "continues"
)]
struct Everything {
    id: u64,
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "part", key = id, retry(base = "2s"), after_dead_letter = "parked")]
struct Part {
    id: u64,
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "nothing", retry(), after_dead_letter = "continues")]
struct WithoutKey;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "plain")]
struct Plain;

#[test]
fn each_part_is_carried_or_left_to_the_consumer() {
    let everything = RetryOverride::NONE
        .attempts_max(1000)
        .immediate(999)
        .base(Duration::from_millis(250))
        .cap(Duration::from_secs(24 * 60 * 60))
        .deadline(Duration::from_secs(29 * 60))
        .after_dead_letter(AfterDeadLetter::Continues);
    assert_eq!(Everything::RETRY, everything);
    let part = RetryOverride::NONE
        .base(Duration::from_secs(2))
        .after_dead_letter(AfterDeadLetter::Parked);
    assert_eq!(Part::RETRY, part);
    let continues = RetryOverride::NONE.after_dead_letter(AfterDeadLetter::Continues);
    assert_eq!(WithoutKey::RETRY, continues);
    assert_eq!(Plain::RETRY, RetryOverride::NONE);
}
