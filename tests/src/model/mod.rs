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
//! | [`Step::AcquireLane`], [`Step::NoticeLane`], [`Step::ExpireLane`], and of the partition | leases: taken when free, trusted until their owner notices; a process that is paused notices late, so it goes on as long as it likes | `lease/mod.rs` |
//! | [`Step::Claim`], [`Step::Send`], [`Step::Confirm`], [`Step::Settle`] | a dispatcher's round: of a key one after another, settled with the lane's fence | `outbox/dispatcher.rs`, `outbox/publishing.rs` |
//! | [`Step::Begin`], [`Step::Commit`], [`Step::Acknowledge`] | deliveries, in hand until they are acknowledged or the channel goes, which gives them back in their order; a batch: the inbox's insert waits for whoever holds an id, then the fence is looked at, then what is on hold | `store/inbox.rs`, `consumer/batch.rs` |
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
//! Four models that make a mistake ([`Mistake`], the names of `supervision/broken.rs`), and one that leaves the
//! broker's lock away, show that the properties can fail, and that the lock is needed.

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

/// Crashes, leases that run out, failures, lost connections, copies.
const fn bounds(crashes: u8, expiries: u8, failures: u8, losses: u8, copies: u8) -> Bounds {
    Bounds {
        crashes,
        expiries,
        failures,
        losses,
        copies,
    }
}

/// Within each of these everything is looked at, in seconds.
const BOUNDS: [Bounds; 4] = [
    bounds(1, 0, 1, 0, 0),
    bounds(0, 1, 0, 0, 0),
    bounds(0, 0, 1, 1, 0),
    bounds(0, 0, 0, 1, 1),
];

/// Within these too, when `POSTA_TEST_MODEL` is `deep`: it takes minutes, and a release build.
const DEEP: [Bounds; 7] = [
    bounds(1, 0, 0, 0, 1),
    bounds(2, 0, 0, 0, 0),
    bounds(0, 1, 1, 0, 0),
    bounds(0, 0, 1, 1, 1),
    bounds(1, 1, 0, 0, 0),
    bounds(0, 1, 0, 1, 0),
    bounds(1, 0, 1, 1, 0),
];

#[test]
fn the_protocol_keeps_its_promises_in_every_state() {
    let deep = std::env::var("POSTA_TEST_MODEL").is_ok_and(|how| how == "deep");
    let deeper = DEEP.iter().filter(|_| deep);
    for &bounds in BOUNDS.iter().chain(deeper) {
        let began = std::time::Instant::now();
        let protocol = Protocol {
            bounds,
            mistake: None,
        };
        let checker = protocol.checker().threads(2).symmetry_fn(State::sorted);
        let checker = checker.spawn_dfs().join();
        assert!(checker.is_done(), "not all states were looked at");
        let (states, depth) = (checker.unique_state_count(), checker.max_depth());
        let took = began.elapsed();
        println!("{bounds:?}: {states} states, at most {depth} steps from the first, {took:?}");
        for property in property::all() {
            if let Some(path) = checker.discovery(property.name) {
                panic!("broken: {}\n{path}", property.name);
            }
            println!("    holds: {}", property.name);
        }
    }
}

/// Finds a state that breaks a property, and a way to it.
fn is_found(mistake: Mistake, bounds: Bounds, property: &'static str) {
    let protocol = Protocol {
        bounds,
        mistake: Some(mistake),
    };
    let finish = stateright::HasDiscoveries::AnyOf([property].into());
    let checker = protocol.checker().finish_when(finish);
    let checker = checker.spawn_bfs().join();
    let states = checker.unique_state_count();
    let path = checker.discovery(property);
    let path = path.unwrap_or_else(|| panic!("{mistake:?} breaks nothing in {states} states"));
    let steps = path.into_actions();
    let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
    let steps = steps.join(", ");
    println!("{mistake:?} breaks {property:?}, seen after {states} states: {steps}");
}

#[test]
fn a_protocol_that_acknowledges_before_it_commits_loses_messages() {
    is_found(Mistake::Acknowledge, bounds(1, 0, 0, 0, 0), property::KEPT);
}

#[test]
fn a_protocol_that_settles_before_the_confirm_loses_messages() {
    is_found(Mistake::Confirm, bounds(1, 0, 0, 0, 0), property::KEPT);
}

#[test]
fn a_protocol_without_an_inbox_doubles_effects() {
    is_found(Mistake::Inbox, bounds(1, 0, 0, 0, 0), property::ONCE);
}

#[test]
fn a_protocol_that_holds_nothing_breaks_the_order() {
    is_found(Mistake::Hold, bounds(0, 0, 1, 0, 0), property::ORDER);
}

/// Why the broker's lock is needed beside the leases: what a paused owner has in hand, nobody else can
/// have before it.
#[test]
fn a_queue_with_two_active_consumers_breaks_the_order() {
    let bounds = bounds(0, 1, 0, 0, 0);
    is_found(Mistake::ManyConsumers, bounds, property::ORDER);
}
