use posta::Message;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message = "document.signed"]
pub struct DocumentSigned {
    pub document_id: u64,
}

fn main() {}
