use posta::Message;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", retry(cap = "25h"))]
pub struct DocumentSigned {
    pub document_id: u64,
}

fn main() {}
