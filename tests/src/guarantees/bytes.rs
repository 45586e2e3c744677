//! G8: the payload that a handler gets is byte for byte what was enqueued.

use bytes::Bytes;
use posta::message::{DecodeError, EnvelopeError};
use posta::{Codec, Consumer, Failure, Message, MessageId, Tx};

use crate::world::effects::{Effect, effects_of};
use crate::world::service::{builder, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination};

on_every_combination!(payload_bytes_arrive_as_they_were_enqueued);

/// A message that is its bytes.
#[derive(Message)]
#[message(type = "test.blob", version = 1, codec = AsIs)]
struct Blob(Bytes);

struct AsIs;

impl Codec<Blob> for AsIs {
    const CONTENT_TYPE: &'static str = "application/octet-stream";

    fn encode(blob: &Blob) -> Result<Bytes, EnvelopeError> {
        Ok(blob.0.clone())
    }

    fn decode(payload: &Bytes, _version: u32) -> Result<Blob, DecodeError> {
        Ok(Blob(payload.clone()))
    }
}

async fn on_blob<D: TestDatabase>(
    blob: Blob,
    tx: &mut Tx<'_, D>,
    id: MessageId,
) -> Result<(), Failure> {
    let effect = Effect {
        consumer: "blobs".to_owned(),
        key: String::new(),
        number: 0,
        message_id: id.to_string(),
        payload: blob.0.to_vec(),
    };
    D::record(tx, effect).await?;
    Ok(())
}

async fn payload_bytes_arrive_as_they_were_enqueued<D: TestDatabase>(broker: BrokerKind) {
    let payloads: Vec<Vec<u8>> = vec![
        Vec::new(),
        (0..=255).collect(),
        b"a\0b".to_vec(),
        br#"{"a":"\ud800"}"#.to_vec(),
        br"\u0000".to_vec(),
        "🚚 \u{202e}אבג".as_bytes().to_vec(),
        vec![0xff; 70_000],
        (0..1024 * 1024)
            .map(|n: u32| (n * 31 % 251) as u8)
            .collect(),
    ];
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world)
        .consumer(Consumer::named("blobs").handle_with::<Blob, _>(on_blob::<D>))
        .start()
        .await
        .expect("a running service");
    let mut ids = Vec::new();
    for payload in &payloads {
        let blob = Blob(Bytes::copy_from_slice(payload));
        let id = posta
            .transaction(async |tx| Ok::<_, anyhow::Error>(tx.enqueue(&blob)?))
            .await;
        ids.push(id.expect("a transaction").to_string());
    }
    until_quiet::<D>(&store, "blobs", payloads.len()).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, "blobs").await;
    assert_eq!(effects.len(), payloads.len());
    for (id, payload) in ids.iter().zip(&payloads) {
        let effect = effects
            .iter()
            .find(|effect| effect.message_id == *id)
            .expect("its effect");
        assert!(
            effect.payload == *payload,
            "a payload of {} bytes changed",
            payload.len()
        );
    }
}
