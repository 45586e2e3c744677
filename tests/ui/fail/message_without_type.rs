use posta::Message;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Message)]
#[message(version = 1, key = document_id)]
pub struct DocumentSigned {
    pub document_id: u64,
}

fn main() {}
