use std::time::Duration;

use super::settings::{CONNECT_TIMEOUT_MAX, CONNECTIONS_DEFAULT, Settings};
use super::spawn::Parts;
use super::{Posta, StartError};
use crate::broker::Broker;
use crate::consumer::{Consumer, State};
use crate::outbox::DispatchPolicy;
use crate::retry::RetryPolicy;
use crate::store::{Connect, Database, DatabasePool, MigrationStore, Store, Tables};
use crate::supervision::{Budget, PastBudget};

/// Collects what a runtime is made of. Setters never fail; [`Builder::start`] reports every mistake
/// at once.
pub struct Builder<D: Database> {
    database_url: String,
    broker: Broker,
    pool: Option<DatabasePool<D>>,
    connect: Connect,
    migrate: bool,
    consumers: Vec<Consumer<D>>,
    state: State,
    settings: Settings,
}

impl<D: Database> Builder<D> {
    pub(super) fn new(database_url: &str, broker: Broker) -> Self {
        Self {
            database_url: database_url.to_owned(),
            broker,
            pool: None,
            connect: Connect {
                tables: Tables::default(),
                connections_max: CONNECTIONS_DEFAULT,
                timeout: Duration::from_secs(10),
                transaction_pooler: false,
            },
            migrate: false,
            consumers: Vec::new(),
            state: State::default(),
            settings: Settings::default(),
        }
    }

    /// Adds a consumer: a [`Consumer`], or a struct that derives one.
    #[must_use]
    pub fn consumer(mut self, consumer: impl Into<Consumer<D>>) -> Self {
        self.consumers.push(consumer.into());
        self
    }

    /// Shares a value with the handlers of all consumers, as [`crate::Data`]; a consumer's own
    /// value of the type takes precedence.
    #[must_use]
    pub fn data<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(value);
        self
    }

    /// Runs Posta's migrations at start. Off by default: no DDL runs unless asked.
    #[must_use]
    pub fn migrate_at_start(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Where Posta's tables are; schema or prefix `posta` by default.
    ///
    /// On PostgreSQL beware of a role of the same name: its default `search_path` (`"$user",
    /// public`) then puts Posta's schema before `public`, and the application's own unqualified
    /// tables would be created in it.
    #[must_use]
    pub fn tables(mut self, tables: Tables) -> Self {
        self.connect.tables = tables;
        self
    }

    /// Uses the application's own pool instead of making one from the URL. It should have at least
    /// four connections.
    #[must_use]
    pub fn pool(mut self, pool: DatabasePool<D>) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Most connections in the pool that Posta makes; 16 by default.
    #[must_use]
    pub fn connections_max(mut self, connections: usize) -> Self {
        self.connect.connections_max = connections;
        self
    }

    /// How long to wait for a connection before the database counts as unavailable, at most 10 min;
    /// 10 s by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect.timeout = timeout;
        self
    }

    /// Says that a pooler in transaction mode (PgBouncer) stands before PostgreSQL: no statement is
    /// kept prepared, and other processes are noticed by polling, since a pooler does not carry
    /// notifications.
    #[must_use]
    pub fn transaction_pooler(mut self, pooler: bool) -> Self {
        self.connect.transaction_pooler = pooler;
        self
    }

    /// Threads that the actors are spread over, 1 to 64; by default one per core, at most 4.
    #[must_use]
    pub fn arbiters(mut self, arbiters: usize) -> Self {
        self.settings.arbiters = arbiters;
        self
    }

    /// Rows that a dispatcher claims at once, 1 to 10,000; 256 by default. Also the most that it
    /// has unconfirmed at the broker.
    #[must_use]
    pub fn dispatch_batch(mut self, rows: usize) -> Self {
        self.settings.dispatch_batch = rows;
        self
    }

    /// What becomes of messages that the broker returns or refuses: attempts, the pauses between
    /// them, and what comes then. For every message type without a policy of its own.
    #[must_use]
    pub fn dispatch(mut self, policy: DispatchPolicy) -> Self {
        self.settings.dispatch.all = policy;
        self
    }

    /// The same for the messages of one type, whatever [`Builder::dispatch`] says; the last one
    /// said of a type counts. No code here needs to know the type: rows of the outbox may come from
    /// anybody.
    #[must_use]
    pub fn dispatch_for(mut self, message_type: impl Into<String>, policy: DispatchPolicy) -> Self {
        let by_type = &mut self.settings.dispatch.by_type;
        by_type.insert(message_type.into(), policy);
        self
    }

    /// Messages that a partition handles in one transaction, 1 to 10,000; 256 by default. 1 gives
    /// every message a transaction of its own.
    #[must_use]
    pub fn consume_batch(mut self, messages: usize) -> Self {
        self.settings.consume_batch = messages;
        self
    }

    /// Largest payload in bytes, at enqueue and at dispatch: 1 to 16 MiB; 1 MiB by default.
    #[must_use]
    pub fn payload_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.payload_bytes_max = bytes;
        self
    }

    /// How long a lease lasts without renewal, 1 s to 10 min; 15 s by default. Work of a killed
    /// process rests for this long at most.
    #[must_use]
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.settings.lease_ttl = ttl;
        self
    }

    /// The longest pause between two looks into outbox and queues, 10 ms to 60 s; 1 s by default.
    #[must_use]
    pub fn poll_interval_max(mut self, interval: Duration) -> Self {
        self.settings.poll_interval_max = interval;
        self
    }

    /// How often and when messages are tried at consumers, and what becomes of them then; see
    /// [`RetryPolicy`] for the default and for what takes precedence.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.retry = policy;
        self
    }

    /// Messages of one key that may wait at a consumer, in the retry table; 100,000 by default. At
    /// the limit their partition takes nothing more until there are less; a batch may go beyond it.
    #[must_use]
    pub fn held_max(mut self, messages: usize) -> Self {
        self.settings.held_max = messages;
        self
    }

    /// How long a message of a type without a handler waits for one, since a rolling deployment may
    /// be about to bring it; 10 min by default.
    #[must_use]
    pub fn unknown_type_grace(mut self, grace: Duration) -> Self {
        self.settings.unknown_type_grace = grace;
        self
    }

    /// How long a drain may take before it is aborted; 25 s by default, below Kubernetes' 30 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// How often an actor may fail, within which time, before everything that belongs to its concern
    /// (the outbox, one consumer, the leases) is ended and started anew; 10 times within 120 s by
    /// default. An outage of database or broker is waited out and is no failure.
    #[must_use]
    pub fn restarts(mut self, budget: Budget) -> Self {
        self.settings.restarts = budget;
        self
    }

    /// How often a concern may be started anew, within which time, before the runtime has failed
    /// ([`Builder::past_budget`]); 3 times within 15 min by default.
    #[must_use]
    pub fn rebuilds(mut self, budget: Budget) -> Self {
        self.settings.rebuilds = budget;
        self
    }

    /// The longest rest before an actor that fails again and again is restarted, and before a
    /// concern that has failed past every budget is tried again, 1 s to 1 h; 30 s by default. With
    /// a longer one a broken actor costs less, and one that would be well again waits longer.
    #[must_use]
    pub fn restart_backoff(mut self, longest: Duration) -> Self {
        self.settings.restart_backoff = longest;
        self
    }

    /// How long an actor has run without a failure when it has recovered, 1 s to 1 h; 30 s by
    /// default: its next failure is then a first one, a concern that had failed is healthy again,
    /// and one that left its work to other processes takes its share again.
    #[must_use]
    pub fn stable_after(mut self, run: Duration) -> Self {
        self.settings.stable_after = run;
        self
    }

    /// What becomes of a runtime that has failed: it stays up and says so in its health (the
    /// default), or it drains and exits with an error.
    #[must_use]
    pub fn past_budget(mut self, past_budget: PastBudget) -> Self {
        self.settings.past_budget = past_budget;
        self
    }

    /// Checks everything, connects to the database, runs or checks the migrations, and spawns the
    /// actors. A broker that is not there does not stop the start: dispatch and consuming begin
    /// when it comes.
    ///
    /// # Cancel safety
    /// Not safe after the migrations: actors may have been spawned.
    ///
    /// # Errors
    /// [`StartError::Configuration`] with every mistake; [`StartError::Store`] when the database is
    /// not ready.
    pub async fn start(self) -> Result<Posta<D>, StartError> {
        let mut mistakes = self.settings.mistakes();
        mistakes.extend(self.broker.mistakes());
        let mut consumers = self.consumers;
        for consumer in &mut consumers {
            consumer.state.fill_from(&self.state);
            mistakes.extend(consumer.mistakes(self.settings.retry));
        }
        let mut names: Vec<&str> = consumers
            .iter()
            .map(|consumer| consumer.name.as_str())
            .collect();
        names.sort_unstable();
        for pair in names.windows(2).filter(|pair| pair[0] == pair[1]) {
            mistakes.push(format!("two consumers are named {:?}", pair[0]));
        }
        if self.connect.connections_max < 4 {
            mistakes.push(format!(
                "connections_max: {}; it must be at least 4",
                self.connect.connections_max
            ));
        }
        if self.connect.timeout.is_zero() || self.connect.timeout > CONNECT_TIMEOUT_MAX {
            mistakes.push(format!(
                "connect_timeout: {:?}; it must be more than 0 and at most {CONNECT_TIMEOUT_MAX:?}",
                self.connect.timeout
            ));
        }
        if !mistakes.is_empty() {
            return Err(StartError::Configuration(mistakes));
        }
        if actix::System::try_current().is_none() {
            return Err(StartError::NoActorSystem);
        }
        let store = match self.pool {
            Some(pool) => D::Store::with_pool(pool, &self.connect),
            None => D::Store::connect(&self.database_url, &self.connect)?,
        };
        if self.migrate {
            for migration in store.migrate().await? {
                tracing::info!(
                    version = migration.version,
                    name = migration.name,
                    "migrated"
                );
            }
        }
        store.check_migrations().await?;
        let parts = Parts {
            store,
            broker: self.broker,
            consumers,
            settings: self.settings,
        };
        Ok(parts.spawn().await)
    }
}
