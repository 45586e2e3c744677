//! The two processes: the test binary itself, called again.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracerProvider};
use posta::message::{Headers, MessageType};
use posta::store::Store as _;
use posta::{
    Consumer, DeliveryInfo, Envelope, Failure, Message, Outbox, Posta, Sqlite, Tables, Tx,
};
use serde::{Deserialize, Serialize};
use tracing::{Instrument as _, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

use super::exported;
use crate::world::{BrokerKind, TestDatabase, World, effects, service, until};

const ROLE: &str = "POSTA_TEST_TRACE_ROLE";

/// A trace that began elsewhere, in a system that knows nothing of Posta.
pub(super) const FOREIGN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// The same, not recorded.
pub(super) const UNRECORDED: &str = "00-0af7651916cd43dd8448eb211c80319d-b7ad6b7169203331-00";
/// No trace context at all.
pub(super) const MALFORMED: &str = "00-0AF7-whatever";

/// How many messages the receiver handles: the notes of [`send_all`], and one answer.
pub(super) const HANDLED: i64 = 12;

/// A message that says what is to be done with it.
#[derive(Debug, Serialize, Deserialize, Message)]
#[message(type = "trace.note", version = 1, key = key)]
struct Note {
    key: String,
}

/// What the handler of a [`Note`] enqueues, if it is the one of the whole journey.
#[derive(Debug, Serialize, Deserialize, Message)]
#[message(type = "trace.answer", version = 1)]
struct Answer {}

/// A message that no consumer takes.
#[derive(Debug, Serialize, Deserialize, Message)]
#[message(type = "trace.orphan", version = 1)]
struct Orphan {}

/// What a process is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Makes the queues, no more.
    Declare,
    /// Enqueues and dispatches.
    Send,
    /// Handles.
    Receive,
}

/// Runs a process to its end; what it exported is then in the file.
pub(super) fn run<D: TestDatabase>(world: &World<D>, role: Role, file: &Path) {
    let ended = Command::new(std::env::current_exe().expect("the test binary"))
        .args([
            "--exact",
            "trace::child::run_when_asked",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, format!("{role:?}"))
        .env("POSTA_TEST_TRACE_DATABASE_KIND", D::KIND)
        .env("POSTA_TEST_TRACE_DATABASE", &world.database_url)
        .env("POSTA_TEST_TRACE_TABLES", world.tables.name())
        .env("POSTA_TEST_TRACE_BROKER", &world.broker_url)
        .env("POSTA_TEST_TRACE_FILE", file)
        .stdin(Stdio::null())
        .output()
        .expect("a child process");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        ended.status.success(),
        "{role:?}: {}\n{}",
        text(&ended.stdout),
        text(&ended.stderr)
    );
}

/// The child's side. As a test of its own it does nothing: it is the entry of child processes.
#[test]
fn run_when_asked() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let role = match role.as_str() {
        "Declare" => Role::Declare,
        "Send" => Role::Send,
        _ => Role::Receive,
    };
    match env("DATABASE_KIND").as_str() {
        "sqlite" => play::<Sqlite>(role),
        _ => play::<posta::Postgres>(role),
    }
}

fn env(name: &str) -> String {
    std::env::var(format!("POSTA_TEST_TRACE_{name}")).expect("the parent has said everything")
}

fn play<D: TestDatabase>(role: Role) {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
        .with_simple_exporter(exporter.clone())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("posta-tests"));
    let subscriber = tracing_subscriber::registry()
        .with(tracing_subscriber::EnvFilter::new(
            "info,posta::telemetry=debug",
        ))
        .with(layer);
    tracing::subscriber::set_global_default(subscriber).expect("the only subscriber");
    actix::System::new().block_on(async move {
        let broker = posta::Broker::from_url(&env("BROKER")).expect("a valid broker");
        let tables = Tables::named(env("TABLES")).expect("a valid name");
        let builder = Posta::<D>::builder(&env("DATABASE"), broker).tables(tables);
        // One dispatcher, so that what is enqueued together goes in one wave.
        let mut builder = service::quick(builder).arbiters(1);
        if role != Role::Send {
            builder = builder.consumer(consumer::<D>());
        }
        let posta = builder.start().await.expect("a running service");
        match role {
            Role::Declare => posta.declared().await,
            Role::Send => send_all(&posta).await,
            Role::Receive => until_handled(&posta).await,
        }
        posta.stop().await.expect("a drain within its grace");
    });
    let spans = exporter.get_finished_spans().expect("the exported spans");
    exported::write(env("FILE").as_ref(), &spans);
}

/// Everything that the sender enqueues; then waits until all is dispatched but the one message that
/// cannot be.
async fn send_all<D: TestDatabase>(posta: &Posta<D>) {
    for name in ["journey", "fails", "panics"] {
        let span = info_span!("request", name);
        enqueue(posta, &[name]).instrument(span).await;
    }
    enqueue(posta, &["first", "second", "third"])
        .instrument(info_span!("request", name = "batch"))
        .await;
    for context in [FOREIGN, UNRECORDED, MALFORMED] {
        let mut headers = Headers::default();
        headers.set("traceparent", context).expect("room");
        headers.set("tracestate", "vendor=1").expect("room");
        let payload = serde_json::to_vec(&Note {
            key: context.to_owned(),
        })
        .expect("JSON");
        let envelope = Envelope::builder(MessageType::new("trace.note").expect("a type"), payload)
            .headers(headers)
            .build()
            .expect("an envelope");
        let enqueue = async |tx: &mut Tx<'_, D>| {
            tx.enqueue_envelope(envelope)?;
            Ok::<_, anyhow::Error>(())
        };
        posta.transaction(enqueue).await.expect("a transaction");
    }
    let later = async |tx: &mut Tx<'_, D>| {
        let key = "later".to_owned();
        tx.enqueue_after(&Note { key }, Duration::from_millis(300))?;
        Ok::<_, anyhow::Error>(())
    };
    posta
        .transaction(later)
        .instrument(info_span!("request", name = "later"))
        .await
        .expect("a transaction");
    enqueue_alone(posta)
        .instrument(info_span!("request", name = "alone"))
        .await;
    let orphan = async |tx: &mut Tx<'_, D>| {
        tx.enqueue(&Orphan {})?;
        Ok::<_, anyhow::Error>(())
    };
    let request = info_span!("request", name = "orphan");
    posta
        .transaction(orphan)
        .instrument(request)
        .await
        .expect("a transaction");
    until("all is dispatched or has failed", async || {
        waiting(posta, "scheduled").await == 0
            && waiting(posta, "outbox").await == 1
            && waiting(posta, "outbox WHERE attempts > 0").await == 1
    })
    .await;
}

async fn enqueue<D: TestDatabase>(posta: &Posta<D>, keys: &[&str]) {
    let enqueue = async |tx: &mut Tx<'_, D>| {
        for key in keys {
            tx.enqueue(&Note {
                key: (*key).to_owned(),
            })?;
        }
        Ok::<_, anyhow::Error>(())
    };
    posta.transaction(enqueue).await.expect("a transaction");
}

/// Enqueues on a transaction and an outbox of the application's own.
async fn enqueue_alone<D: TestDatabase>(posta: &Posta<D>) {
    let outbox = Outbox::<D>::new(posta.store().tables().clone());
    let mut session = posta.store().begin().await.expect("a transaction");
    let note = Note {
        key: "alone".to_owned(),
    };
    outbox.enqueue(&mut session, &note).await.expect("a row");
    session.commit().await.expect("a commit");
    posta.nudge();
}

async fn until_handled<D: TestDatabase>(posta: &Posta<D>) {
    // In this order: what is in the inbox has been handled, or is in the retry table by then.
    until("all is handled", async || {
        waiting(posta, "inbox").await == HANDLED
            && waiting(posta, "retry").await == 0
            && waiting(posta, "outbox").await == 1
    })
    .await;
}

async fn waiting<D: TestDatabase>(posta: &Posta<D>, table: &str) -> i64 {
    let sql = format!("SELECT CAST(COUNT(*) AS BIGINT) AS count FROM {{posta}}{table}");
    effects::count::<D>(posta.store(), &sql).await
}

fn consumer<D: TestDatabase>() -> Consumer<D> {
    Consumer::named("notes")
        .partitions(2)
        .handle_with::<Note, _>(on_note::<D>)
        .handle_with::<Answer, _>(on_answer::<D>)
}

async fn on_note<D: TestDatabase>(
    note: Note,
    tx: &mut Tx<'_, D>,
    info: DeliveryInfo,
) -> Result<(), Failure> {
    let header = |name: &str| info.headers.get(name).unwrap_or_default().to_owned();
    tracing::info!(
        key = note.key,
        traceparent = header("traceparent"),
        tracestate = header("tracestate"),
        "a note"
    );
    match note.key.as_str() {
        "fails" if info.attempt == 1 => Err(Failure::new("told to fail")),
        "panics" if info.attempt == 1 => panic!("told to panic"),
        "journey" => {
            tx.enqueue(&Answer {})?;
            Ok(())
        }
        _ => Ok(()),
    }
}

async fn on_answer<D: TestDatabase>(_: Answer, _: &mut Tx<'_, D>) -> Result<(), Failure> {
    Ok(())
}

/// How the test names what a world's broker is called in spans.
pub(super) fn system<D: TestDatabase>(broker: BrokerKind) -> &'static str {
    match broker {
        BrokerKind::Database => D::NAME,
        BrokerKind::RabbitMq => "rabbitmq",
    }
}
