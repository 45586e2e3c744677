use posta::Message;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", key = document_id, after_dead_letter = "ignore")]
pub struct DocumentSigned {
    pub document_id: u64,
}

fn main() {}
