use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posta::outbox::DispatchPolicy;
use posta::retry::{AfterDeadLetter, RetryPolicy};
use posta::{Broker, Builder, Consumer, Data, DeliveryInfo, Envelope, Failure, Message};
use posta::{MessageId, OrderingKey, Posta, Tables, Tx};
use serde::{Deserialize, Serialize};

use super::command::{Fault, Nature};
use super::model::{Kind, MAIN, WITNESS};
use crate::world::TestDatabase;

/// What a message says, of whatever type it is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Content {
    pub(super) number: usize,
    pub(super) takes: Duration,
}

macro_rules! messages {
    ($($name:ident $type:tt),+) => {
        $(#[derive(Debug, Serialize, Deserialize, Message)]
        #[message(type = $type, version = 1)]
        struct $name {
            content: Content,
        }

        impl From<$name> for Content {
            fn from(message: $name) -> Self {
                message.content
            }
        })+
    };
}

messages!(
    Step "machine.step",
    Stride "machine.stride",
    LateStep "machine.late_step",
    LateStride "machine.late_stride"
);

/// The message in its envelope: whether it has a key does not depend on its type.
pub(super) fn envelope(kind: Kind, key: Option<&str>, content: Content) -> Envelope {
    let envelope = match kind {
        Kind::Step => Envelope::of(&Step { content }),
        Kind::Stride => Envelope::of(&Stride { content }),
        Kind::LateStep => Envelope::of(&LateStep { content }),
        Kind::LateStride => Envelope::of(&LateStride { content }),
    };
    let mut envelope = envelope.expect("a valid envelope");
    envelope.key = key.map(|key| OrderingKey::new(key).expect("a valid key"));
    envelope
}

/// As the tests' tables have it.
pub(super) fn plain(id: MessageId) -> String {
    id.as_uuid().simple().to_string()
}

/// Which messages fail at [`MAIN`]: known to all processes, whatever is rolled back.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults(Arc<Mutex<BTreeMap<usize, Fault>>>);

impl Faults {
    pub(super) fn set(&self, number: usize, fault: Fault) {
        self.lock().insert(number, fault);
    }

    pub(super) fn heal(&self, which: usize) {
        let mut faults = self.lock();
        if let Some(&number) = faults.keys().nth(which % faults.len().max(1)) {
            faults.remove(&number);
        }
    }

    pub(super) fn heal_all(&self) {
        self.lock().clear();
    }

    /// What a message's handler is to do now.
    fn next(&self, number: usize) -> Option<Nature> {
        let mut faults = self.lock();
        let fault = faults.get_mut(&number)?;
        match &mut fault.times {
            None => Some(fault.nature),
            Some(0) => None,
            Some(left) => {
                *left -= 1;
                Some(fault.nature)
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, Fault>> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The table of effects: `seen` is how many of its key's a handler saw there.
pub(super) fn create_table(kind: &str) -> String {
    let number = match kind {
        "sqlite" => "INTEGER PRIMARY KEY AUTOINCREMENT",
        _ => "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    };
    format!(
        "CREATE TABLE took (position {number}, consumer text NOT NULL, message_id text NOT NULL, \
         key text NOT NULL, seen bigint NOT NULL)"
    )
}

struct Name(&'static str);

/// Lives as long as anything of a process does.
pub(super) struct Token;

async fn handle<D: TestDatabase, M: Message + Into<Content>>(
    message: M,
    tx: &mut Tx<'_, D>,
    info: DeliveryInfo,
    name: Data<Name>,
    faults: Data<Faults>,
) -> Result<(), Failure> {
    let content: Content = message.into();
    let (name, id) = (name.0, plain(info.id));
    let key = info.key.as_ref().map_or("", |key| key.as_str());
    let sql = format!(
        "INSERT INTO took (consumer, message_id, key, seen) SELECT '{name}', '{id}', '{key}', \
         (SELECT COUNT(*) FROM took WHERE consumer = '{name}' AND key = '{key}')"
    );
    D::run(tx, &sql).await?;
    if !content.takes.is_zero() {
        actix_rt::time::sleep(content.takes).await;
    }
    if name != MAIN {
        return Ok(());
    }
    match faults.next(content.number) {
        None => Ok(()),
        Some(Nature::Transient) => Err(Failure::new("told to fail")),
        Some(Nature::Permanent) => Err(Failure::permanent("told to fail for good")),
        Some(Nature::DeadLetter) => Err(Failure::dead_letter("told to be a dead letter")),
        // As a panic, without a word on standard error.
        Some(Nature::Panic) => std::panic::resume_unwind(Box::new("told to panic")),
    }
}

/// As short as a loaded machine allows: a lease that runs out before it is renewed, again and again,
/// lets nothing come to rest.
fn lease_ttl<D: TestDatabase>() -> Duration {
    match D::KIND {
        "sqlite" => Duration::from_millis(1500),
        // A renewal is many round trips.
        _ => Duration::from_secs(4),
    }
}

/// The service of one process; a new one takes every type.
pub(super) fn builder<D: TestDatabase>(
    database_url: &str,
    tables: Tables,
    faults: &Faults,
    token: Arc<Token>,
    is_new: bool,
) -> Builder<D> {
    let parks = RetryPolicy::default()
        .immediate(1)
        .attempts_max(3)
        .backoff(Duration::from_millis(5), Duration::from_millis(30));
    let continues = parks.after_dead_letter(AfterDeadLetter::Continues);
    let unroutable = DispatchPolicy::default()
        .attempts_max(2)
        .backoff(Duration::from_millis(5), Duration::from_millis(20));
    let named = |name: &'static str, partitions| {
        Consumer::<D>::named(name)
            .partitions(partitions)
            .data(Name(name))
            .data(faults.clone())
            .handle_with::<Step, _>(handle::<D, Step>)
            .handle_with::<Stride, _>(handle::<D, Stride>)
            .retry_for::<Stride>(continues)
    };
    let mut main = named(MAIN, 2);
    if is_new {
        main = main
            .handle_with::<LateStep, _>(handle::<D, LateStep>)
            .handle_with::<LateStride, _>(handle::<D, LateStride>)
            .retry_for::<LateStride>(continues);
    }
    let broker = Broker::from_url("database").expect("a valid broker");
    Posta::<D>::builder(database_url, broker)
        .tables(tables)
        .arbiters(1)
        .connections_max(6)
        .connect_timeout(Duration::from_secs(30))
        .lease_ttl(lease_ttl::<D>())
        .poll_interval_max(Duration::from_millis(50))
        .grace(Duration::from_secs(20))
        .retry(parks)
        .dispatch(unroutable)
        .dispatch_for(
            LateStride::TYPE,
            unroutable.after_dead_letter(AfterDeadLetter::Continues),
        )
        .data(token)
        .consumer(main)
        .consumer(named(WITNESS, 1))
}
