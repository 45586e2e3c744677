use super::MESSAGES;

/// How often what can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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

/// The row of a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    pub(super) owned: bool,
    pub(super) epoch: u8,
}

/// A row of the retry table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) message: u8,
    /// It has a time; without one it waits for its key's head.
    pub(super) due: bool,
}

/// A dispatcher's round: the rows that it has claimed, and how far each is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Round {
    pub(super) epoch: u8,
    pub(super) rows: Vec<u8>,
    pub(super) sent: Set,
    pub(super) arrived: Set,
    pub(super) confirmed: Set,
    /// The channel is gone: what is not confirmed by now never will be.
    pub(super) broken: bool,
}

/// An open transaction of a partition actor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) dead: bool,
    /// The epochs of the leases that it believes to have.
    pub(super) lane: Option<u8>,
    pub(super) partition: Option<u8>,
    pub(super) round: Option<Round>,
    pub(super) subscribed: bool,
    /// Delivered and not acknowledged, in order.
    pub(super) hand: Vec<u8>,
    pub(super) open: Option<Open>,
}

/// The database, the broker, two processes, and how much more may go wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) outbox: Set,
    pub(super) lane: Lease,
    pub(super) partition: Lease,
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
            lane: Lease::default(),
            partition: Lease::default(),
            inbox: Set::default(),
            effects: Vec::new(),
            retry: Vec::new(),
            queue: Vec::new(),
            processes: [Process::default(), Process::default()],
            left: bounds,
        }
    }

    /// Whether a belief in a lease is what the database says.
    pub(super) fn holds(lease: Lease, belief: Option<u8>) -> bool {
        lease.owned && belief == Some(lease.epoch)
    }

    /// The first message of a key in the retry table.
    pub(super) fn head(&self, message: u8) -> Option<Held> {
        let mut rows = self.retry.iter();
        rows.find(|row| same_key(row.message, message)).copied()
    }

    /// All that can be done is done.
    pub(super) fn is_done(&self) -> bool {
        self.outbox.is_empty() && MESSAGES.iter().all(|message| self.effects.contains(message))
    }
}
