//! The protocol as a small model, checked exhaustively: whatever two processes, a database and a broker
//! do, in whatever order, with crashes, lost connections, copies and lost leases anywhere.
//!
//! What is in it: three messages that are committed in the outbox, [`FIRST`] and [`SECOND`] of one key,
//! [`OTHER`] of another; one lane, one partition, each with its lease; a broker with one queue of which
//! one consumer is active. Two processes do what the runtime does, each step of the model one
//! transaction or one word with the broker:
//!
//! | steps | what they are | where it is written |
//! |---|---|---|
//! | [`Step::Acquire`], [`Step::Notice`], [`Step::Expire`] | leases: taken when free, trusted until their owner notices; a process that is paused notices late, so it goes on as long as it likes | `lease/mod.rs` |
//! | [`Step::Claim`], [`Step::Send`], [`Step::Arrive`], [`Step::Confirm`], [`Step::Settle`] | a dispatcher's round: of a key one after another, settled with the lane's fence | `outbox/dispatcher.rs`, `outbox/publishing.rs` |
//! | [`Step::Subscribe`], [`Step::Receive`] | deliveries in hand, given back in their order when the channel goes | `broker/rabbitmq/mod.rs` |
//! | [`Step::Begin`], [`Step::Commit`], [`Step::Acknowledge`] | a batch: the inbox's insert waits for whoever holds an id, then the fence is looked at, then what is on hold | `store/inbox.rs`, `consumer/batch.rs` |
//! | [`Step::Fail`], [`Step::PutAside`] | a handler fails: the batch is undone, the message alone goes to the retry table | `consumer/single.rs` |
//! | [`Step::Try`], [`Step::TryCommit`], [`Step::TryFail`], [`Step::Promote`] | a retry, and the next of its key | `consumer/due.rs`, `store/retry.rs` |
//! | [`Step::Crash`], [`Step::Restart`], [`Step::Lose`], [`Step::Copy`] | what goes wrong | |
//!
//! What is not in it: dead letters and what operators do (the state machine tests those), returned and
//! refused messages, time (a lease runs out at any moment), partitions that change hands in an orderly
//! way (a step of leases that loses nothing).
//!
//! What must hold in every state ([`property`]): nothing is lost (G2), effects are once (G3), in order
//! (G4), the inbox knows what was handled and nothing else; and from every state, if nothing more goes
//! wrong, all messages take effect. How much goes wrong is bounded ([`Bounds`]); within the bounds
//! nothing is left out.
//!
//! Four models that make a mistake ([`Mistake`], the names of `supervision/broken.rs`), and two that leave a
//! lock away, show that the properties can fail, and that the locks are needed.

mod property;
mod state;
mod step;

use stateright::{Checker as _, Model};

use self::state::{Bounds, State};
use self::step::Step;

/// The first message of a key, its second, and one of another key.
const FIRST: u8 = 0;
const SECOND: u8 = 1;
const OTHER: u8 = 2;
const MESSAGES: [u8; 3] = [FIRST, SECOND, OTHER];

/// What a protocol can do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// Deliveries are acknowledged before their transaction is committed.
    Acknowledge,
    /// Rows are settled before the broker has confirmed them.
    Confirm,
    /// Every delivery is taken for a new one.
    Inbox,
    /// A failing message's key is not on hold.
    Hold,
    /// The fence is not looked at.
    Fence,
    /// A queue has any number of active consumers.
    ManyConsumers,
}

/// The protocol, or one with a mistake.
#[derive(Clone, Copy, Debug)]
struct Protocol {
    bounds: Bounds,
    mistake: Option<Mistake>,
}

impl Protocol {
    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.bounds)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.steps(state, steps);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut state = state.clone();
        self.take(&mut state, step);
        Some(state)
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        property::all()
    }
}

/// Within these bounds everything is looked at.
const BOUNDS: [Bounds; 3] = [
    Bounds {
        crashes: 1,
        expiries: 1,
        failures: 1,
        losses: 0,
        copies: 0,
    },
    Bounds {
        crashes: 0,
        expiries: 1,
        failures: 0,
        losses: 1,
        copies: 1,
    },
    Bounds {
        crashes: 1,
        expiries: 0,
        failures: 1,
        losses: 1,
        copies: 0,
    },
];

#[test]
fn the_protocol_keeps_its_promises_in_every_state() {
    for bounds in BOUNDS {
        let began = std::time::Instant::now();
        let protocol = Protocol {
            bounds,
            mistake: None,
        };
        let checker = protocol.checker().threads(2).spawn_bfs().join();
        let (states, depth) = (checker.unique_state_count(), checker.max_depth());
        println!("{bounds:?}: {states} states, at most {depth} steps deep, {:?}", began.elapsed());
        for property in property::all() {
            let path = checker.discovery(property.name);
            println!("    {}: {}", property.name, if path.is_some() { "BROKEN" } else { "holds" });
            if let Some(path) = path {
                panic!("{}: {path}", property.name);
            }
        }
        assert!(checker.is_done(), "all states were looked at");
    }
}

/// Finds a state that breaks a property, and the shortest way to it.
fn is_found(mistake: Mistake, bounds: Bounds, property: &'static str) {
    let protocol = Protocol {
        bounds,
        mistake: Some(mistake),
    };
    let finish = stateright::HasDiscoveries::AnyOf([property].into());
    let checker = protocol.checker().threads(2).finish_when(finish).spawn_bfs().join();
    let path = checker.discovery(property);
    let path = path.unwrap_or_else(|| {
        panic!("{mistake:?} breaks nothing in {} states", checker.unique_state_count())
    });
    let steps: Vec<String> = path.into_actions().iter().map(|step| format!("{step:?}")).collect();
    println!("{mistake:?} breaks {property:?}: {}", steps.join(", "));
}

#[test]
fn a_protocol_that_acknowledges_before_it_commits_loses_messages() {
    is_found(Mistake::Acknowledge, BOUNDS[0], property::KEPT);
}

#[test]
fn a_protocol_that_settles_before_the_confirm_loses_messages() {
    is_found(Mistake::Confirm, BOUNDS[0], property::KEPT);
}

#[test]
fn a_protocol_without_an_inbox_doubles_effects() {
    is_found(Mistake::Inbox, BOUNDS[0], property::ONCE);
}

#[test]
fn a_protocol_that_holds_nothing_breaks_the_order() {
    is_found(Mistake::Hold, BOUNDS[0], property::ORDER);
}
