//! The child's side: a service with some of the three consumers, and perhaps a producer.
//!
//! A producer writes down what it enqueues in the table `sent`, in the same transaction; so does a
//! handler with what it answers. What a handler did is a row of the table `took`.

use std::io::Read as _;
use std::time::Duration;

use posta::broker::rabbitmq::RabbitMqOptions;
use posta::message::MessageId;
use posta::outbox::DispatchPolicy;
use posta::retry::RetryPolicy;
use posta::{
    Broker, Builder, Consumer, DeliveryInfo, Failure, Message, Posta, Postgres, Sqlite, Tables, Tx,
};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

use super::message::{AUDIT, BILLING, Fate, Invoice, LEDGER, Note, Order, Receipt, hash};
use crate::world::TestDatabase;

/// The variable that makes a process a child: its [`Orders`].
pub(super) const CHILD: &str = "POSTA_TEST_FAULTS_CHILD";

/// What a child says when its consumers' queues are there.
pub(super) const READY: &str = "the child is ready";

/// Unacknowledged deliveries of a queue, at most (G7).
pub(super) const PREFETCH: u16 = 64;

/// Messages that wait behind one key, at most (G7).
pub(super) const HELD_MAX: usize = 1_000;

/// Keys of orders; each has its invoices' and its receipts' key.
pub(super) const KEYS: u32 = 300;

/// Messages of one transaction of a producer are of so many keys.
const KEYS_TOGETHER: u32 = 4;

/// The longest that a lease lasts without renewal.
pub(super) const LEASE_TTL: Duration = Duration::from_secs(3);

/// How many partitions a consumer has in a division: its first one, and those that it is changed to,
/// over and over.
pub(super) fn partitions(consumer: &str, division: usize) -> u8 {
    let divisions: [u8; 3] = match consumer {
        LEDGER => [4, 6, 3],
        BILLING => [3, 1, 5],
        AUDIT => [2, 4, 3],
        other => panic!("no such consumer: {other}"),
    };
    divisions[division % divisions.len()]
}

/// What a child is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) database: String,
    pub(super) database_url: String,
    pub(super) tables: String,
    pub(super) broker_url: String,
    pub(super) consumers: Vec<String>,
    /// Which numbers of partitions it wishes: [`partitions`].
    pub(super) division: usize,
    /// It sends orders and notes.
    pub(super) produces: bool,
    /// Of what its producer draws.
    pub(super) seed: u64,
}

/// The child's side. As a test of its own it does nothing: it is the entry of child processes.
#[test]
fn run_when_asked() {
    let Ok(orders) = std::env::var(CHILD) else {
        return;
    };
    let orders: Orders = serde_json::from_str(&orders).expect("orders");
    crate::world::log::show_logs();
    match orders.database.as_str() {
        "sqlite" => run::<Sqlite>(orders),
        "postgres" => run::<Postgres>(orders),
        other => panic!("no such database: {other:?}"),
    }
}

fn run<D: TestDatabase>(orders: Orders) {
    actix::System::new().block_on(async move {
        // The parent closes it when it wants a drain, or when it dies.
        let mut closed = actix_rt::task::spawn_blocking(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
        });
        let posta = tokio::select! {
            posta = started::<D>(&orders) => posta,
            _ = &mut closed => return,
        };
        tokio::select! {
            _ = &mut closed => {}
            () = work(&posta, &orders) => {}
        }
        posta.stop().await.expect("a drain within its grace");
    });
}

/// As its platform would start it, again and again until database and broker are there.
async fn started<D: TestDatabase>(orders: &Orders) -> Posta<D> {
    loop {
        match builder::<D>(orders).start().await {
            Ok(posta) => return posta,
            Err(error) => eprintln!("not started: {error:?}"),
        }
        actix_rt::time::sleep(Duration::from_millis(300)).await;
    }
}

async fn work<D: TestDatabase>(posta: &Posta<D>, orders: &Orders) {
    posta.declared().await;
    println!("{READY}");
    if orders.produces {
        produce(posta, orders.seed).await;
    }
    std::future::pending().await
}

fn broker(url: &str) -> Broker {
    if !url.starts_with("amqp") {
        return Broker::from_url(url).expect("a valid broker");
    }
    let options = RabbitMqOptions::from_url(url).expect("a valid URL");
    Broker::rabbitmq(
        options
            .prefetch(PREFETCH)
            .heartbeat(Duration::from_secs(2))
            .connect_timeout(Duration::from_secs(3))
            .answer_timeout(Duration::from_secs(5))
            .publish_timeout(Duration::from_secs(6)),
    )
}

fn builder<D: TestDatabase>(orders: &Orders) -> Builder<D> {
    let retry = RetryPolicy::default()
        .immediate(1)
        .attempts_max(20)
        .backoff(Duration::from_millis(30), Duration::from_millis(300));
    // A queue that was deleted is nobody's fault.
    let dispatch = DispatchPolicy::default()
        .attempts_max(10_000)
        .backoff(Duration::from_millis(100), Duration::from_secs(1));
    let tables = Tables::named(orders.tables.clone()).expect("a valid name");
    let mut builder = Posta::<D>::builder(&orders.database_url, broker(&orders.broker_url))
        .tables(tables)
        .arbiters(1)
        .connections_max(6)
        .connect_timeout(Duration::from_secs(5))
        .dispatch_batch(128)
        .consume_batch(48)
        .lease_ttl(LEASE_TTL)
        .poll_interval_max(Duration::from_millis(200))
        .grace(Duration::from_secs(15))
        .held_max(HELD_MAX)
        .retry(retry)
        .dispatch(dispatch);
    for name in &orders.consumers {
        let divided = Consumer::named(name).partitions(partitions(name, orders.division));
        let consumer = match name.as_str() {
            LEDGER => divided.handle_with::<Order, _>(on_order::<D>),
            BILLING => divided.handle_with::<Invoice, _>(on_invoice::<D>),
            AUDIT => divided
                .handle_with::<Order, _>(on_audited::<D, Order>)
                .handle_with::<Invoice, _>(on_audited::<D, Invoice>)
                .handle_with::<Receipt, _>(on_audited::<D, Receipt>)
                .handle_with::<Note, _>(on_note::<D>),
            other => panic!("no such consumer: {other:?}"),
        };
        builder = builder.consumer(consumer);
    }
    builder
}

/// What all keyed messages have.
pub(super) trait Keyed: Message {
    fn parts(&self) -> (&str, i64, Fate);
}

macro_rules! parts {
    ($($name:ident),+) => {
        $(impl Keyed for $name {
            fn parts(&self) -> (&str, i64, Fate) {
                (&self.key, self.number, self.fate)
            }
        })+
    };
}

parts!(Order, Invoice, Receipt);

/// An answer is drawn of the message's id, so that every try of it sends the same one.
fn rng(info: &DeliveryInfo) -> StdRng {
    StdRng::seed_from_u64(info.id.as_uuid().as_u128() as u64)
}

async fn on_order<D: TestDatabase>(
    order: Order,
    tx: &mut Tx<'_, D>,
    info: DeliveryInfo,
) -> Result<(), Failure> {
    take(tx, LEDGER, &order, &info).await?;
    let key = format!("i-{}", order.key);
    let invoice = Invoice::draw(key, order.number, &mut rng(&info));
    send(tx, &[&invoice]).await?;
    befall(tx, order.fate, &info).await
}

async fn on_invoice<D: TestDatabase>(
    invoice: Invoice,
    tx: &mut Tx<'_, D>,
    info: DeliveryInfo,
) -> Result<(), Failure> {
    take(tx, BILLING, &invoice, &info).await?;
    let key = invoice.key.replacen('i', "r", 1);
    let mut receipt = Receipt::draw(key, invoice.number, &mut rng(&info));
    // Nobody answers it.
    receipt.fate = Fate::Fine;
    send(tx, &[&receipt]).await?;
    befall(tx, invoice.fate, &info).await
}

async fn on_audited<D: TestDatabase, M: Keyed + Serialize>(
    message: M,
    tx: &mut Tx<'_, D>,
    info: DeliveryInfo,
) -> Result<(), Failure> {
    take(tx, AUDIT, &message, &info).await
}

async fn on_note<D: TestDatabase>(
    note: Note,
    tx: &mut Tx<'_, D>,
    info: DeliveryInfo,
) -> Result<(), Failure> {
    let (id, hash) = (plain(info.id), hash(&serde_json::to_vec(&note)?));
    let attempt = info.attempt;
    let sql = format!(
        "INSERT INTO took (consumer, key, number, message_id, seen, attempt, hash) \
         VALUES ('{AUDIT}', '', 0, '{id}', 0, {attempt}, {hash})"
    );
    Ok(D::run(tx, &sql).await?)
}

/// Writes an effect down, and how many of its key's it sees.
async fn take<D: TestDatabase, M: Keyed + Serialize>(
    tx: &mut Tx<'_, D>,
    consumer: &str,
    message: &M,
    info: &DeliveryInfo,
) -> Result<(), Failure> {
    let (key, number, _) = message.parts();
    let (id, hash) = (plain(info.id), hash(&serde_json::to_vec(message)?));
    let attempt = info.attempt;
    let sql = format!(
        "INSERT INTO took (consumer, key, number, message_id, seen, attempt, hash) \
         SELECT '{consumer}', '{key}', {number}, '{id}', \
         (SELECT COALESCE(MAX(number), 0) FROM took WHERE consumer = '{consumer}' AND key = '{key}'), \
         {attempt}, {hash}"
    );
    Ok(D::run(tx, &sql).await?)
}

/// Enqueues messages and writes them down.
async fn send<D: TestDatabase, M: Keyed + Serialize>(
    tx: &mut Tx<'_, D>,
    messages: &[&M],
) -> Result<(), Failure> {
    let mut rows = Vec::with_capacity(messages.len());
    for message in messages {
        let id = plain(tx.enqueue(*message)?);
        let hash = hash(&serde_json::to_vec(message)?);
        let (key, number, fate) = message.parts();
        let (message_type, failures) = (M::TYPE, fate.failures());
        rows.push(format!(
            "('{message_type}', '{key}', {number}, '{id}', {failures}, {hash})"
        ));
    }
    write_down(tx, &rows).await
}

async fn write_down<D: TestDatabase>(tx: &mut Tx<'_, D>, rows: &[String]) -> Result<(), Failure> {
    let rows = rows.join(", ");
    let sql =
        format!("INSERT INTO sent (type, key, number, message_id, failures, hash) VALUES {rows}");
    Ok(D::run(tx, &sql).await?)
}

/// Fails, after all was written, if that is the message's fate.
async fn befall<D: TestDatabase>(
    tx: &mut Tx<'_, D>,
    fate: Fate,
    info: &DeliveryInfo,
) -> Result<(), Failure> {
    match fate {
        Fate::Fails(times) if info.attempt <= times => {
            Err(Failure::new(format!("told to fail, try {}", info.attempt)))
        }
        Fate::Dies => {
            let id = plain(info.id);
            let sql = format!("SELECT COUNT(*) AS count FROM mended WHERE message_id = '{id}'");
            match D::count(tx, &sql).await? {
                0 => Err(Failure::dead_letter("told to die")),
                _ => Ok(()),
            }
        }
        Fate::Fine | Fate::Fails(_) => Ok(()),
    }
}

/// Sends for ever, at the rate that the table `control` says, in transactions an hour.
async fn produce<D: TestDatabase>(posta: &Posta<D>, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    loop {
        let pause = match transaction(posta, &mut rng).await {
            Ok(0) => Duration::from_millis(200),
            Ok(rate) => Duration::from_secs(3600) / u32::try_from(rate).unwrap_or(u32::MAX),
            Err(error) => {
                eprintln!("not sent: {error:?}");
                Duration::from_millis(200)
            }
        };
        actix_rt::time::sleep(pause).await;
    }
}

/// One transaction that sends; returns the rate.
async fn transaction<D: TestDatabase>(
    posta: &Posta<D>,
    rng: &mut StdRng,
) -> Result<i64, anyhow::Error> {
    posta
        .transaction(async |tx| {
            let rate = "SELECT value AS count FROM control WHERE name = 'rate'";
            let rate = D::count(tx, rate).await?;
            if rate == 0 {
                return Ok(0);
            }
            // In order, so that two producers do not wait for each other.
            let first = rng.random_range(0..KEYS);
            let mut keys: Vec<u32> = (0..KEYS_TOGETHER).map(|n| (first + 7 * n) % KEYS).collect();
            keys.sort_unstable();
            for key in keys {
                let key = format!("k{key}");
                let count = rng.random_range(1..=6);
                // Whoever counts a key up has it until the commit: its numbers are in the order of
                // the outbox.
                let sql = format!(
                    "UPDATE counter SET number = number + {count} WHERE key = '{key}' \
                     RETURNING number AS count"
                );
                let last = D::count(tx, &sql).await?;
                let orders: Vec<Order> = (last - count + 1..=last)
                    .map(|number| Order::draw(key.clone(), number, rng))
                    .collect();
                let orders: Vec<&Order> = orders.iter().collect();
                send(tx, &orders).await.map_err(failed)?;
            }
            note(tx, rng).await?;
            Ok(rate)
        })
        .await
}

async fn note<D: TestDatabase>(tx: &mut Tx<'_, D>, rng: &mut StdRng) -> Result<(), anyhow::Error> {
    let note = Note::draw(rng);
    let id = match rng.random_range(0..3) {
        0 => tx.enqueue(&note)?,
        _ => tx.enqueue_after(&note, Duration::from_millis(rng.random_range(0..2000)))?,
    };
    let (id, hash, message_type) = (plain(id), hash(&serde_json::to_vec(&note)?), Note::TYPE);
    let row = format!("('{message_type}', '', 0, '{id}', 0, {hash})");
    write_down(tx, &[row]).await.map_err(failed)
}

fn failed(failure: Failure) -> anyhow::Error {
    anyhow::anyhow!("{failure:?}")
}

/// As the tests' tables have it.
pub(super) fn plain(id: MessageId) -> String {
    id.as_uuid().simple().to_string()
}
