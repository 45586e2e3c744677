use super::MESSAGES;

/// How often what can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Bounds {
    /// Processes that die.
    pub(super) crashes: u8,
    /// Leases that run out while their owner trusts in them.
    pub(super) expiries: u8,
    /// Tries of handlers that fail.
    pub(super) failures: u8,
    /// Connections to the broker that end.
    pub(super) losses: u8,
    /// Copies of messages that arrive at any time later.
    pub(super) copies: u8,
}

/// A set of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Set(u8);

impl Set {
    pub(super) fn has(self, message: u8) -> bool {
        self.0 & (1 << message) != 0
    }

    pub(super) fn add(&mut self, message: u8) {
        self.0 |= 1 << message;
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<u8> for Set {
    fn from_iter<T: IntoIterator<Item = u8>>(messages: T) -> Self {
        let mut set = Self::default();
        messages.into_iter().for_each(|message| set.add(message));
        set
    }
}

/// What a process has of a lease. Its row in the database has an owner exactly if some process, or one
/// that has died, has the row's epoch; an older epoch is as good as any other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Belief {
    #[default]
    None,
    /// It believes to own it, and does not any more.
    Stale,
    Owner,
}

/// A row of the retry table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Held {
    pub(super) message: u8,
    /// It has a time; without one it waits for its key's head.
    pub(super) due: bool,
}

/// A dispatcher's round: the rows that it has claimed, and how far each is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Round {
    pub(super) rows: Vec<u8>,
    /// In the queue, and nothing of it is known yet.
    pub(super) sent: Set,
    pub(super) confirmed: Set,
    /// The channel is gone: what is not confirmed by now never will be.
    pub(super) broken: bool,
}

/// An open transaction of a partition actor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Open {
    /// Of deliveries: their ids are in the inbox for this transaction.
    Batch {
        deliveries: Vec<u8>,
        fresh: Set,
        /// The first two messages' key is on hold.
        held: bool,
    },
    /// Committed, and not acknowledged yet.
    Committed { deliveries: Vec<u8> },
    /// A handler has failed; its message is to go to the retry table.
    Failed { message: u8 },
    /// A row of the retry table is taken out; the next of its key, as far as it is there, gets its
    /// time with it.
    Try { message: u8, next: Option<u8> },
}

/// What a process has in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Process {
    pub(super) dead: bool,
    pub(super) lane: Belief,
    pub(super) partition: Belief,
    pub(super) round: Option<Round>,
    pub(super) subscribed: bool,
    /// Delivered and not acknowledged, in order.
    pub(super) hand: Vec<u8>,
    pub(super) open: Option<Open>,
}

/// The database, the broker, two processes, and how much more may go wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct State {
    pub(super) outbox: Set,
    /// Whether the lane's lease has an owner.
    pub(super) lane: bool,
    pub(super) partition: bool,
    pub(super) inbox: Set,
    /// In the order of their commits.
    pub(super) effects: Vec<u8>,
    /// In the order of their positions.
    pub(super) retry: Vec<Held>,
    pub(super) queue: Vec<u8>,
    pub(super) processes: [Process; 2],
    pub(super) left: Bounds,
}

/// Whether two messages have the same key.
pub(super) fn same_key(a: u8, b: u8) -> bool {
    (a == super::OTHER) == (b == super::OTHER)
}

impl State {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            outbox: MESSAGES.into_iter().collect(),
            lane: false,
            partition: false,
            inbox: Set::default(),
            effects: Vec::new(),
            retry: Vec::new(),
            queue: Vec::new(),
            processes: [Process::default(), Process::default()],
            left: bounds,
        }
    }

    /// The same state with the processes in a certain order: which is which makes no difference.
    pub(super) fn sorted(&self) -> Self {
        let mut state = self.clone();
        state.processes.sort();
        state
    }

    /// Whether a lease's owner is alive and goes by it.
    pub(super) fn is_trusted(&self, belief: impl Fn(&Process) -> Belief) -> bool {
        self.processes.iter().any(|it| belief(it) == Belief::Owner)
    }

    /// The first message of a key in the retry table.
    pub(super) fn head(&self, message: u8) -> Option<Held> {
        let mut rows = self.retry.iter();
        rows.find(|row| same_key(row.message, message)).copied()
    }

    /// All that can be done is done.
    pub(super) fn is_done(&self) -> bool {
        self.outbox.is_empty()
            && MESSAGES
                .iter()
                .all(|message| self.effects.contains(message))
    }
}
