use posta::Message;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", keyy = document_id)]
pub struct DocumentSigned {
    pub document_id: u64,
}

fn main() {}
