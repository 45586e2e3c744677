use posta::Message;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", retry(atempts = 3))]
pub struct DocumentSigned {
    pub document_id: u64,
}

fn main() {}
