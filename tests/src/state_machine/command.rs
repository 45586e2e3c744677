use proptest::prelude::*;

use super::model::Kind;

/// Keys that messages have; the last is none.
pub(super) const KEYS: [Option<&str>; 4] = [Some("a"), Some("b"), Some("c"), None];

/// Where a process may be made to die.
const POINTS: [&str; 20] = [
    "consume.acknowledged",
    "consume.admitted",
    "consume.committed",
    "consume.handled",
    "consume.held",
    "consume.suspected",
    "dispatch.claimed",
    "dispatch.enqueued_due",
    "dispatch.published",
    "dispatch.settled",
    "lease.committed",
    "replay.committed",
    "replay.settled",
    "replay.stepped",
    "retry.claimed",
    "retry.claimed_alone",
    "retry.committed",
    "retry.committed_together",
    "retry.handled",
    "retry.set_aside",
];

/// How a handler fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    Transient,
    Permanent,
    DeadLetter,
    Panic,
}

/// A message that fails at its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) nature: Nature,
    /// How often; `None`: until it is healed.
    pub(super) times: Option<u8>,
}

/// One step of a sequence. What a number chooses is counted around: every number chooses something,
/// if there is anything.
#[derive(Clone, Debug)]
pub(super) enum Command {
    /// Commits messages of one key in one transaction; the first may fail.
    Send {
        kind: Kind,
        key: usize,
        count: u8,
        fault: Option<Fault>,
        /// How long each one's handler takes, in ms.
        takes: u8,
    },
    /// Commits a message that is due a little later.
    Schedule {
        kind: Kind,
        key: usize,
        after: u8,
    },
    /// Takes a scheduled message back, if it is not due yet.
    CancelScheduled {
        which: usize,
    },
    /// Mends what makes a message fail.
    Heal {
        which: usize,
    },
    /// Drops a process where it stands, its leases and claims left behind: at once, or when it
    /// reaches a point for the nth time.
    Crash {
        process: usize,
        at: Option<(&'static str, u8)>,
    },
    /// Drains a process and starts it again.
    Restart {
        process: usize,
    },
    /// Drains a process and starts it with handlers for every type.
    Upgrade {
        process: usize,
    },
    /// Lets the leases of a running process run out.
    LoseLeases {
        rank: usize,
    },
    /// Operators act, each on one letter in the right state.
    Replay {
        which: usize,
    },
    Skip {
        which: usize,
    },
    Discard {
        which: usize,
    },
    Restore {
        which: usize,
    },
    /// An operator begins a replay run of all dead letters.
    Run {
        failures_max: Option<u8>,
    },
    /// Operators steer the newest run.
    Pause,
    Resume,
    Cancel,
    /// Everything that was dispatched goes out again.
    Redispatch,
    /// Lets the processes work, for so many ms.
    Work {
        ms: u8,
    },
    /// Waits until everything that can run has run.
    Settle,
}

/// Any command.
pub(super) fn command() -> impl Strategy<Value = Command> {
    let process = 0..2_usize;
    let which = any::<u8>().prop_map(usize::from);
    prop_oneof![
        10 => send(),
        1 => (kind(), 0..KEYS.len(), 0..80_u8)
            .prop_map(|(kind, key, after)| Command::Schedule { kind, key, after }),
        1 => which.clone().prop_map(|which| Command::CancelScheduled { which }),
        3 => which.clone().prop_map(|which| Command::Heal { which }),
        3 => (process.clone(), point()).prop_map(|(process, at)| Command::Crash { process, at }),
        1 => process.clone().prop_map(|process| Command::Restart { process }),
        1 => process.prop_map(|process| Command::Upgrade { process }),
        2 => (0..2_usize).prop_map(|rank| Command::LoseLeases { rank }),
        4 => which.clone().prop_map(|which| Command::Replay { which }),
        2 => which.clone().prop_map(|which| Command::Skip { which }),
        2 => which.clone().prop_map(|which| Command::Discard { which }),
        2 => which.prop_map(|which| Command::Restore { which }),
        2 => prop::option::of(1..3_u8).prop_map(|failures_max| Command::Run { failures_max }),
        1 => prop_oneof![Just(Command::Pause), Just(Command::Resume), Just(Command::Cancel)],
        1 => Just(Command::Redispatch),
        3 => (1..60_u8).prop_map(|ms| Command::Work { ms }),
        4 => Just(Command::Settle),
    ]
}

fn send() -> impl Strategy<Value = Command> {
    let fault = prop::option::weighted(0.4, fault());
    let takes = prop_oneof![4 => Just(0_u8), 1 => 1..30_u8];
    (kind(), 0..KEYS.len(), 1..5_u8, fault, takes).prop_map(|(kind, key, count, fault, takes)| {
        Command::Send {
            kind,
            key,
            count,
            fault,
            takes,
        }
    })
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        5 => Just(Kind::Step),
        3 => Just(Kind::Stride),
        1 => Just(Kind::LateStep),
        1 => Just(Kind::LateStride),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    let nature = prop_oneof![
        2 => Just(Nature::Transient),
        1 => Just(Nature::Permanent),
        1 => Just(Nature::DeadLetter),
        1 => Just(Nature::Panic),
    ];
    let times = prop_oneof![Just(None), (1..8_u8).prop_map(Some)];
    (nature, times).prop_map(|(nature, times)| Fault { nature, times })
}

fn point() -> impl Strategy<Value = Option<(&'static str, u8)>> {
    prop::option::weighted(0.8, (prop::sample::select(&POINTS[..]), 1..3_u8))
}
