use posta::Message;
use serde::Serialize;

#[derive(Serialize, Message)]
#[message(type = "document.signed")]
pub struct DocumentSigned<'a> {
    pub signer: &'a str,
}

fn main() {}
