use stateright::Property;

use super::state::State;
use super::step::Step;
use super::{FIRST, MESSAGES, Protocol, SECOND};

pub(super) const KEPT: &str = "G2: every message waits, is under way, or was handled";
pub(super) const ONCE: &str = "G3: every effect is once";
pub(super) const ORDER: &str = "G4: effects of a key are in order";
pub(super) const INBOX: &str = "what the inbox knows has taken effect or waits for a retry";
pub(super) const GOES_ON: &str = "if nothing more goes wrong, everything takes effect";

/// So many steps are enough for whatever is left to do.
const STEPS_MAX: usize = 120;

pub(super) fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always(KEPT, |_, state| {
            MESSAGES.iter().all(|it| is_kept(state, *it))
        }),
        Property::always(ONCE, |_, state: &State| {
            MESSAGES.iter().all(|it| count(state, *it) <= 1)
        }),
        Property::always(ORDER, |_, state: &State| {
            let at = |message| state.effects.iter().position(|it| *it == message);
            match (at(FIRST), at(SECOND)) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(first), Some(second)) => first < second,
            }
        }),
        Property::always(INBOX, |_, state: &State| {
            MESSAGES.iter().all(|message| {
                let waits = state.retry.iter().any(|row| row.message == *message);
                state.inbox.has(*message) == (waits || count(state, *message) > 0)
            })
        }),
        Property::always(GOES_ON, goes_on),
    ]
}

fn count(state: &State, message: u8) -> usize {
    state.effects.iter().filter(|it| **it == message).count()
}

fn is_kept(state: &State, message: u8) -> bool {
    let in_hand = state.processes.iter().any(|it| it.hand.contains(&message));
    state.outbox.has(message)
        || state.queue.contains(&message)
        || in_hand
        || state.inbox.has(message)
}

/// Takes steps, of which none goes wrong, until everything is done. What ends
/// something comes before what begins something, so that this comes to an end if it can.
fn goes_on(protocol: &Protocol, state: &State) -> bool {
    let mut state = state.clone();
    let mut steps = Vec::new();
    for _ in 0..STEPS_MAX {
        if state.is_done() {
            return true;
        }
        steps.clear();
        // What nobody trusts in runs out; what somebody trusts in is renewed.
        state.left.expiries = 0;
        protocol.steps(&state, &mut steps);
        let best = steps.iter().filter(|step| !step.is_fault());
        let Some(step) = best.min_by_key(|step| rank(**step)) else {
            return false;
        };
        protocol.take(&mut state, *step);
    }
    state.is_done()
}

fn rank(step: Step) -> u8 {
    match step {
        Step::Restart(_) => 0,
        Step::ExpireLane | Step::ExpirePartition => 1,
        Step::NoticeLane(_) | Step::NoticePartition(_) => 2,
        Step::Confirm(..) => 3,
        Step::Settle(_) | Step::Commit(_) | Step::Acknowledge(_) => 4,
        Step::PutAside(_) | Step::TryCommit(_) => 5,
        Step::AcquireLane(_) | Step::AcquirePartition(_) => 6,
        Step::Send(..) => 7,
        Step::Promote(..) | Step::Try(..) => 8,
        Step::Begin(..) => 9,
        _ => 10,
    }
}
