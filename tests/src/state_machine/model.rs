use std::collections::BTreeMap;

/// Whom the messages are for: this consumer's handlers fail as they are told,
pub(super) const MAIN: &str = "main";
/// and this one's never do, whatever becomes of the same message at the other.
pub(super) const WITNESS: &str = "witness";

/// What differs between message types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its key waits for its dead letter.
    Step,
    /// Its key goes on without it.
    Stride,
    /// As `Step`, and nobody takes it before the processes are upgraded.
    LateStep,
    /// As `Stride`, and nobody takes it before the processes are upgraded.
    LateStride,
}

impl Kind {
    pub(super) fn continues(self) -> bool {
        matches!(self, Self::Stride | Self::LateStride)
    }

    pub(super) fn is_late(self) -> bool {
        matches!(self, Self::LateStep | Self::LateStride)
    }

    pub(super) fn consumers(self) -> &'static [&'static str] {
        if self.is_late() {
            &[MAIN]
        } else {
            &[MAIN, WITNESS]
        }
    }
}

/// A message whose transaction committed.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) id: String,
    pub(super) kind: Kind,
    pub(super) key: Option<&'static str>,
    /// Its place in its key's order is where it is when it becomes due.
    pub(super) scheduled: bool,
    /// Taken back before it was due.
    pub(super) cancelled: bool,
    /// Its handler was told to fail.
    pub(super) fails: bool,
}

/// What was asked of Posta and what was done to it: all that the checker knows of a run beside its
/// tables.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// In the order in which they were enqueued.
    pub(super) sent: Vec<Sent>,
    /// Crashes, lost leases and hand-overs: each can leave a claim behind.
    pub(super) disturbances: usize,
    /// Rows went out again with their old ids: copies travel.
    pub(super) redispatched: bool,
    /// How often each action succeeded.
    pub(super) actions: BTreeMap<&'static str, usize>,
}

/// So many processes must have left a message behind before it counts as what they died of.
const DEATHS_MAX: usize = 5;

impl Model {
    /// The messages of each key in the order in which they must take effect, and who takes them.
    pub(super) fn orders(&self) -> BTreeMap<(&'static str, &'static str), Vec<&Sent>> {
        let mut orders: BTreeMap<_, Vec<&Sent>> = BTreeMap::new();
        for sent in self.sent.iter().filter(|sent| !sent.scheduled) {
            for consumer in sent.kind.consumers() {
                if let Some(key) = sent.key {
                    orders.entry((*consumer, key)).or_default().push(sent);
                }
            }
        }
        orders
    }

    /// Whether a message may become a dead letter at a consumer (`None`: at dispatch), for this
    /// reason.
    pub(super) fn may_die(&self, sent: &Sent, consumer: Option<&str>, reason: &str) -> bool {
        match (consumer, reason) {
            (None, "unroutable") => sent.kind.is_late(),
            (Some(_), "killed_process") => self.disturbances >= DEATHS_MAX,
            (Some(MAIN), "failed" | "panicked" | "permanent" | "dead_lettered") => sent.fails,
            _ => false,
        }
    }

    /// Whether a message that became a dead letter of this kind lost its place in its key's order:
    /// its key went on, by its type's policy or by an operator's word.
    pub(super) fn may_be_overtaken(kind: Kind, actions: &[String]) -> bool {
        let let_go = |action: &String| action == "skip" || action == "discard";
        kind.continues() || actions.iter().any(let_go)
    }
}
