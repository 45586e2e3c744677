use posta::Message;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", key = document_id)]
pub enum DocumentSigned {
    ByHand { document_id: u64 },
    ByMachine { document_id: u64 },
}

fn main() {}
