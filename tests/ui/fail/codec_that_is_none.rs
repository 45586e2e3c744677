use posta::Message;

pub struct Cbor;

#[derive(Message)]
#[message(type = "document.signed", codec = Cbor)]
pub struct DocumentSigned {
    pub document_id: u64,
}

fn main() {}
