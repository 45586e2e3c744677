use posta::Message;
use serde::Serialize;

#[derive(Serialize, Message)]
#[message(type = "document.signed")]
pub struct DocumentSigned {
    pub document_id: u64,
}

fn main() {}
