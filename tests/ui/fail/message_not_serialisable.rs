use posta::Message;

#[derive(Message)]
#[message(type = "document.signed")]
pub struct DocumentSigned {
    pub document_id: u64,
}

fn main() {}
