use super::state::{Belief, Held, Open, Round, Set, State, same_key};
use super::{MESSAGES, Mistake, Protocol};

/// What can happen next; the number is the process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    AcquireLane(usize),
    AcquirePartition(usize),
    /// It finds that its lease is no longer its own, or is told so.
    NoticeLane(usize),
    NoticePartition(usize),
    ExpireLane,
    ExpirePartition,
    /// Reads the rows of its lane.
    Claim(usize),
    /// Publishes a row; it is in the queue.
    Send(usize, u8),
    /// The broker's word for it comes back.
    Confirm(usize, u8),
    /// Moves what was confirmed out of the outbox, with the fence.
    Settle(usize),
    /// Takes so many deliveries, and begins a transaction for what is in hand: inbox, fence, what is on
    /// hold. The first time it becomes the queue's active consumer.
    Begin(usize, usize),
    Commit(usize),
    Acknowledge(usize),
    /// The first handler of the batch fails.
    Fail(usize),
    /// The message that failed joins the retry table with its inbox id.
    PutAside(usize),
    /// Takes a row of the retry table out, with the fence.
    Try(usize, u8),
    TryCommit(usize),
    TryFail(usize),
    /// A successor that has become the first of its key without a time gets one.
    Promote(usize, u8),
    Crash(usize),
    Restart(usize),
    /// A process's connections to the broker end.
    Lose(usize),
    /// A copy of a message that was published joins the queue.
    Copy(u8),
}

impl Step {
    /// Whether it is something that goes wrong, as often as the bounds allow.
    pub(super) fn is_fault(self) -> bool {
        matches!(
            self,
            Self::Fail(_) | Self::TryFail(_) | Self::Crash(_) | Self::Lose(_) | Self::Copy(_)
        )
    }
}

impl Protocol {
    /// Every step that can be taken.
    pub(super) fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        // One that nobody trusts in runs out for certain; another one as if its owner was paused.
        if state.lane && (!state.is_trusted(|it| it.lane) || state.left.expiries > 0) {
            steps.push(Step::ExpireLane);
        }
        if state.partition && (!state.is_trusted(|it| it.partition) || state.left.expiries > 0) {
            steps.push(Step::ExpirePartition);
        }
        for number in 0..state.processes.len() {
            if state.processes[number].dead {
                steps.push(Step::Restart(number));
                continue;
            }
            Self::lease_steps(state, number, steps);
            Self::dispatch_steps(state, number, steps);
            self.consume_steps(state, number, steps);
            Self::retry_steps(state, number, steps);
            if state.left.crashes > 0 {
                steps.push(Step::Crash(number));
            }
            let process = &state.processes[number];
            let is_connected =
                process.subscribed || process.round.as_ref().is_some_and(|it| !it.broken);
            if state.left.losses > 0 && is_connected {
                steps.push(Step::Lose(number));
            }
        }
        if state.left.copies > 0 {
            let published = MESSAGES
                .iter()
                .filter(|message| state.inbox.has(**message) || state.queue.contains(message));
            steps.extend(published.map(|message| Step::Copy(*message)));
        }
    }

    fn lease_steps(state: &State, number: usize, steps: &mut Vec<Step>) {
        let process = &state.processes[number];
        match process.lane {
            Belief::None if !state.lane => steps.push(Step::AcquireLane(number)),
            Belief::Stale if process.round.is_none() => steps.push(Step::NoticeLane(number)),
            _ => {}
        }
        match process.partition {
            Belief::None if !state.partition => steps.push(Step::AcquirePartition(number)),
            Belief::Stale if process.open.is_none() => steps.push(Step::NoticePartition(number)),
            _ => {}
        }
    }

    fn dispatch_steps(state: &State, number: usize, steps: &mut Vec<Step>) {
        let process = &state.processes[number];
        let Some(round) = &process.round else {
            if process.lane != Belief::None && !state.outbox.is_empty() {
                steps.push(Step::Claim(number));
            }
            return;
        };
        let mut waits = false;
        for (index, &message) in round.rows.iter().enumerate() {
            if !round.broken {
                let before = round.rows[..index].iter();
                let is_next = before
                    .filter(|it| same_key(**it, message))
                    .all(|it| round.confirmed.has(*it));
                if !round.sent.has(message) && is_next {
                    steps.push(Step::Send(number, message));
                    waits = true;
                }
                if round.sent.has(message) && !round.confirmed.has(message) {
                    steps.push(Step::Confirm(number, message));
                    waits = true;
                }
            }
        }
        if !waits {
            steps.push(Step::Settle(number));
        }
    }

    fn consume_steps(&self, state: &State, number: usize, steps: &mut Vec<Step>) {
        let process = &state.processes[number];
        let other = &state.processes[1 - number];
        let may_subscribe = !other.subscribed || self.makes(Mistake::ManyConsumers);
        let may_receive = process.subscribed || may_subscribe;
        match &process.open {
            None if process.partition != Belief::None && may_receive => {
                // One, or all that is ready.
                let mut counts = vec![state.queue.len()];
                match process.hand.is_empty() {
                    true if state.queue.len() > 1 => counts.push(1),
                    true => {}
                    false => counts.push(0),
                }
                counts.dedup();
                for count in counts {
                    let ids: Set = process
                        .hand
                        .iter()
                        .chain(&state.queue[..count])
                        .copied()
                        .collect();
                    // The insert waits for whoever holds one of the ids.
                    if !ids.is_empty() && !self.is_locked(state, number, ids) {
                        steps.push(Step::Begin(number, count));
                    }
                }
            }
            Some(Open::Batch {
                deliveries,
                fresh,
                held,
            }) => {
                steps.push(Step::Commit(number));
                let called =
                    |message: &&u8| fresh.has(**message) && !self.is_held(*held, **message);
                if state.left.failures > 0 && deliveries.iter().any(|it| called(&it)) {
                    steps.push(Step::Fail(number));
                }
            }
            Some(Open::Committed { .. }) => steps.push(Step::Acknowledge(number)),
            Some(Open::Failed { message })
                if !self.is_locked(state, number, [*message].into_iter().collect()) =>
            {
                steps.push(Step::PutAside(number));
            }
            _ => {}
        }
    }

    /// Whether another process's open transaction has inserted one of these ids.
    fn is_locked(&self, state: &State, number: usize, ids: Set) -> bool {
        let other = &state.processes[1 - number];
        match &other.open {
            Some(Open::Batch {
                deliveries, fresh, ..
            }) if !self.makes(Mistake::Inbox) => {
                deliveries.iter().any(|it| fresh.has(*it) && ids.has(*it))
            }
            _ => false,
        }
    }

    fn is_held(&self, held: bool, message: u8) -> bool {
        held && message != super::OTHER && !self.makes(Mistake::Hold)
    }

    fn retry_steps(state: &State, number: usize, steps: &mut Vec<Step>) {
        let process = &state.processes[number];
        if let Some(Open::Try { .. }) = process.open {
            steps.push(Step::TryCommit(number));
            if state.left.failures > 0 {
                steps.push(Step::TryFail(number));
            }
        }
        if process.partition == Belief::None || process.open.is_some() {
            return;
        }
        for row in &state.retry {
            if state.head(row.message) != Some(*row) {
                continue;
            }
            // A deletion waits for another one of the same row.
            let other = &state.processes[1 - number].open;
            let is_taken =
                matches!(other, Some(Open::Try { message, .. }) if *message == row.message);
            if row.due && !is_taken {
                steps.push(Step::Try(number, row.message));
            }
            if !row.due {
                steps.push(Step::Promote(number, row.message));
            }
        }
    }

    /// Takes a step that can be taken.
    pub(super) fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::ExpireLane => {
                state.left.expiries -= u8::from(state.is_trusted(|it| it.lane));
                state.lane = false;
                for process in &mut state.processes {
                    process.lane = process.lane.min(Belief::Stale);
                }
            }
            Step::ExpirePartition => {
                state.left.expiries -= u8::from(state.is_trusted(|it| it.partition));
                state.partition = false;
                for process in &mut state.processes {
                    process.partition = process.partition.min(Belief::Stale);
                }
            }
            Step::AcquireLane(number) => {
                state.lane = true;
                state.processes[number].lane = Belief::Owner;
            }
            Step::AcquirePartition(number) => {
                state.partition = true;
                state.processes[number].partition = Belief::Owner;
            }
            Step::NoticeLane(number) => state.processes[number].lane = Belief::None,
            Step::NoticePartition(number) => give_up(state, number),
            Step::Restart(number) => state.processes[number].dead = false,
            Step::Crash(number) => crash(state, number),
            Step::Lose(number) => lose(state, number),
            Step::Copy(message) => {
                state.left.copies -= 1;
                state.queue.push(message);
            }
            Step::Claim(number) => self.claim(state, number),
            Step::Send(number, message) => {
                round(state, number).sent.add(message);
                state.queue.push(message);
            }
            Step::Confirm(number, message) => round(state, number).confirmed.add(message),
            Step::Settle(number) => Self::settle(state, number),
            Step::Begin(number, count) => self.begin(state, number, count),
            Step::Commit(number) => self.commit(state, number),
            Step::Acknowledge(number) => {
                let process = &mut state.processes[number];
                if let Some(Open::Committed { deliveries }) = process.open.take() {
                    // What is not in hand any more went with its channel.
                    for message in deliveries {
                        let at = process.hand.iter().position(|it| *it == message);
                        at.map(|at| process.hand.remove(at));
                    }
                }
            }
            Step::Fail(number) => self.fail(state, number),
            Step::PutAside(number) => self.put_aside(state, number),
            Step::Try(number, message) => Self::release(state, number, message),
            Step::TryCommit(number) => {
                if let Some(Open::Try { message, next }) = state.processes[number].open.take() {
                    state.retry.retain(|row| row.message != message);
                    state.effects.push(message);
                    for row in &mut state.retry {
                        row.due |= Some(row.message) == next;
                    }
                }
            }
            Step::TryFail(number) => {
                state.left.failures -= 1;
                state.processes[number].open = None;
            }
            Step::Promote(number, message) => {
                // It needs no fence: a time more is no harm.
                debug_assert!(state.processes[number].partition != Belief::None);
                let rows = state.retry.iter_mut();
                rows.filter(|row| row.message == message)
                    .for_each(|row| row.due = true);
            }
        }
    }

    fn claim(&self, state: &mut State, number: usize) {
        let process = &mut state.processes[number];
        let rows: Vec<u8> = MESSAGES
            .into_iter()
            .filter(|it| state.outbox.has(*it))
            .collect();
        if self.makes(Mistake::Confirm) && process.lane == Belief::Owner {
            state.outbox = Set::default();
        }
        process.round = Some(Round {
            rows,
            sent: Set::default(),
            confirmed: Set::default(),
            broken: false,
        });
    }

    fn settle(state: &mut State, number: usize) {
        let process = &mut state.processes[number];
        let Some(round) = process.round.take() else {
            return;
        };
        if process.lane == Belief::Stale {
            process.lane = Belief::None;
            return;
        }
        let waiting = MESSAGES.into_iter().filter(|it| state.outbox.has(*it));
        state.outbox = waiting.filter(|it| !round.confirmed.has(*it)).collect();
    }

    fn begin(&self, state: &mut State, number: usize, count: usize) {
        let process = &mut state.processes[number];
        process.subscribed = true;
        process.hand.extend(state.queue.drain(..count));
        let is_owner = process.partition == Belief::Owner;
        if !is_owner {
            return give_up(state, number);
        }
        let held = state.head(super::FIRST).is_some();
        let (inbox, process) = (state.inbox, &mut state.processes[number]);
        let deliveries = process.hand.clone();
        let all = self.makes(Mistake::Inbox);
        let fresh = deliveries
            .iter()
            .copied()
            .filter(|it| all || !inbox.has(*it))
            .collect();
        if self.makes(Mistake::Acknowledge) {
            process.hand.clear();
        }
        process.open = Some(Open::Batch {
            deliveries,
            fresh,
            held,
        });
    }

    fn commit(&self, state: &mut State, number: usize) {
        let open = state.processes[number].open.take();
        let Some(Open::Batch {
            deliveries,
            fresh,
            held,
        }) = open
        else {
            return;
        };
        let mut done = Set::default();
        for &message in deliveries.iter().filter(|message| fresh.has(**message)) {
            // A second copy in one batch.
            if done.has(message) {
                continue;
            }
            done.add(message);
            state.inbox.add(message);
            if self.is_held(held, message) {
                let due = false;
                state.retry.push(Held { message, due });
            } else {
                state.effects.push(message);
            }
        }
        state.processes[number].open = Some(Open::Committed { deliveries });
    }

    fn fail(&self, state: &mut State, number: usize) {
        let open = state.processes[number].open.take();
        if let Some(Open::Batch {
            deliveries,
            fresh,
            held,
        }) = open
        {
            let mut called = deliveries.into_iter();
            let called = called.find(|it| fresh.has(*it) && !self.is_held(held, *it));
            state.left.failures -= 1;
            state.processes[number].open = called.map(|message| Open::Failed { message });
        }
    }

    fn put_aside(&self, state: &mut State, number: usize) {
        let open = state.processes[number].open.take();
        let Some(Open::Failed { message }) = open else {
            return;
        };
        let is_owner = state.processes[number].partition == Belief::Owner;
        if !is_owner {
            return give_up(state, number);
        }
        if !state.inbox.has(message) || self.makes(Mistake::Inbox) {
            state.inbox.add(message);
            let due = true;
            state.retry.push(Held { message, due });
        }
        let deliveries = vec![message];
        state.processes[number].open = Some(Open::Committed { deliveries });
    }

    fn release(state: &mut State, number: usize, message: u8) {
        let is_owner = state.processes[number].partition == Belief::Owner;
        if !is_owner {
            return give_up(state, number);
        }
        let behind = |row: &&Held| same_key(row.message, message) && row.message != message;
        let next = state.retry.iter().find(behind).map(|row| row.message);
        state.processes[number].open = Some(Open::Try { message, next });
    }
}

fn round(state: &mut State, number: usize) -> &mut Round {
    let round = state.processes[number].round.as_mut();
    round.expect("a step of a round is only taken in one")
}

/// What was delivered and not acknowledged is in the queue again, where it was.
fn give_back(state: &mut State, number: usize) {
    let process = &mut state.processes[number];
    process.subscribed = false;
    let mut queue = std::mem::take(&mut process.hand);
    queue.append(&mut state.queue);
    state.queue = queue;
}

fn give_up(state: &mut State, number: usize) {
    state.processes[number].partition = Belief::None;
    give_back(state, number);
}

fn lose(state: &mut State, number: usize) {
    state.left.losses -= 1;
    give_back(state, number);
    if let Some(round) = &mut state.processes[number].round {
        round.broken = true;
    }
}

/// What was in memory is gone, what was open is undone. Its leases stay behind.
fn crash(state: &mut State, number: usize) {
    state.left.crashes -= 1;
    give_back(state, number);
    state.processes[number] = super::state::Process {
        dead: true,
        ..Default::default()
    };
}
