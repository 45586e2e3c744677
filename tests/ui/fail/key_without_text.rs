use posta::Message;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", key = document_id)]
pub struct DocumentSigned {
    pub document_id: Option<u64>,
}

fn main() {}
