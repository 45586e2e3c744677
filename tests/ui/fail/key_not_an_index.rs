use posta::Message;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", key = 2)]
pub struct DocumentSigned(u64, u64);

fn main() {}
