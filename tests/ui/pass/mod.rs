//! The accepted forms of `#[derive(Message)]` and `#[derive(Consumer)]`, one noun per file.

mod codec;
mod consumer;
mod data;
mod handler;
mod key;
mod message;
mod retry;

use posta::Message;
use posta::message::KeyWriter;

/// A message's ordering key as it goes into the envelope.
fn key_of(message: &impl Message) -> Option<String> {
    let mut key = KeyWriter::default();
    message.write_key(&mut key);
    key.finish().unwrap().map(|key| key.to_string())
}
