use posta::Message;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", after_dead_letter = "parked")]
pub struct DocumentSigned {
    pub document_id: u64,
}

fn main() {}
