use posta::Message;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", deadline = "0s")]
pub struct DocumentSigned {
    pub document_id: u64,
}

fn main() {}
