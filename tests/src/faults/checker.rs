//! Judges what the tables say. Knows nothing of the driver, of its faults, nor of Posta's code: what
//! was promised, and nothing else.
//!
//! | rule | at any moment | when all is quiet |
//! |---|---|---|
//! | G1 | what was written down as sent is in the outbox, scheduled or dispatched, once; nothing else is | |
//! | G2 | what the inbox knows has taken effect, or waits in the retry table, or is a dead letter; on the database broker, what the inbox does not know is in the queue | nothing is under way; every message has taken effect at every consumer, is a dead letter, or waits behind one of its key |
//! | G3 | one effect for each message and consumer, one answer for each effect | |
//! | G4 | effects of a key at a consumer have the numbers 1, 2, 3 …, each saw its predecessor's | |
//! | G5 | only messages whose handler fails have failed, and just as often | |
//! | G7 | of one key no more waits than configured; no more is unacknowledged | |
//! | G8 | | payloads kept and handled are those that were sent |
//!
//! G6 is that all becomes quiet at all.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::tables::{Letter, Sent, Snapshot, Took, Way};

/// What a checker has to know of the services: who takes what, and their limits.
#[derive(Clone, Debug)]
pub(super) struct Contract {
    /// Which consumers take a message type; the first one answers it, and may fail at it.
    pub(super) takers: Vec<(&'static str, Vec<&'static str>)>,
    /// The message type that a consumer answers with, and how the answer's key begins.
    pub(super) answers: Vec<Answer>,
    pub(super) held_max: usize,
    pub(super) prefetch: u64,
    /// The queues are tables of the database.
    pub(super) queues_in_database: bool,
}

/// One message of this type for each effect of this consumer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) of: &'static str,
    pub(super) message_type: &'static str,
    /// The answer's key is that of what it answers with this in place of that.
    pub(super) key: (&'static str, &'static str),
}

/// What a broker says of a queue.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) name: String,
    pub(super) ready: u64,
    pub(super) unacknowledged: u64,
}

/// What is wrong, and how often.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict {
    pub(super) lost: usize,
    pub(super) doubled: usize,
    pub(super) out_of_order: usize,
    /// Each in words, with the guarantee that is broken.
    pub(super) broken: Vec<String>,
}

impl Verdict {
    pub(super) fn is_clean(&self) -> bool {
        self.lost + self.doubled + self.out_of_order + self.broken.len() == 0
    }

    pub(super) fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.out_of_order += other.out_of_order;
        self.broken.extend(other.broken);
    }

    fn say(&mut self, what: String) {
        self.broken.push(what);
    }
}

/// Judges what holds at any moment.
pub(super) fn judge(contract: &Contract, found: &Snapshot, queues: &[Queue]) -> Verdict {
    let mut verdict = Verdict::default();
    atomic(found, &mut verdict);
    placed(contract, found, &mut verdict);
    once(contract, found, &mut verdict);
    ordered(found, &mut verdict);
    isolated(contract, found, &mut verdict);
    bounded(contract, found, queues, &mut verdict);
    verdict
}

/// Judges what holds when all is quiet: that nothing is lost. `healed`: nothing is dead any more, all
/// has taken effect.
pub(super) fn judge_quiet(
    contract: &Contract,
    found: &Snapshot,
    queues: &[Queue],
    healed: bool,
) -> Verdict {
    let mut verdict = judge(contract, found, queues);
    let took: HashSet<(&str, &str)> = found
        .took
        .iter()
        .map(|took| (took.consumer.as_str(), took.id.as_str()))
        .collect();
    let mut accounted: HashSet<(&str, &str)> = HashSet::new();
    if !healed {
        let dead = found.letters.iter().filter(|letter| letter.state == "dead");
        accounted.extend(dead.map(|letter| (letter.consumer.as_str(), letter.id.as_str())));
        let waiting = found.retry.iter().filter(|row| !row.parked);
        accounted.extend(waiting.map(|row| (row.consumer.as_str(), row.id.as_str())));
    }
    for sent in &found.sent {
        for &consumer in contract.takers_of(&sent.message_type) {
            let it = (consumer, sent.id.as_str());
            if !took.contains(&it) && !accounted.contains(&it) {
                verdict.lost += 1;
                verdict.say(format!("G2 lost at {consumer}: {sent:?}"));
            }
        }
    }
    verdict
}

/// G8: payloads that the tables keep.
pub(super) fn judge_payloads(
    found: &Snapshot,
    payloads: &[(String, String)],
    hash: impl Fn(&[u8]) -> i64,
) -> Verdict {
    let mut verdict = Verdict::default();
    let sent: HashMap<&str, i64> = found
        .sent
        .iter()
        .map(|sent| (sent.id.as_str(), sent.hash))
        .collect();
    for (id, payload) in payloads {
        let bytes: Option<Vec<u8>> = (0..payload.len() / 2)
            .map(|n| u8::from_str_radix(&payload[2 * n..2 * n + 2], 16).ok())
            .collect();
        let hash = bytes.map(|bytes| hash(&bytes));
        // What is kept of a message that was never sent is G1's.
        if sent
            .get(id.as_str())
            .is_some_and(|sent| Some(*sent) != hash)
        {
            verdict.say(format!("G8 the payload of {id} is another one: {payload}"));
        }
    }
    verdict
}

/// What is under way: rows that can go on by themselves. A row waits rightly only behind the place
/// of a dead letter of its key.
pub(super) fn restless(found: &Snapshot, queues: &[Queue]) -> Vec<String> {
    let mut moving = Vec::new();
    for (table, rows) in [("scheduled", &found.scheduled), ("queue", &found.queue)] {
        moving.extend(rows.iter().map(|row| format!("{table}: {row:?}")));
    }
    for (table, rows) in [("outbox", &found.outbox), ("retry", &found.retry)] {
        let mut parked: HashMap<(&str, &str), i64> = HashMap::new();
        for row in rows.iter().filter(|row| row.parked) {
            parked.insert((&row.consumer, &row.key), row.position);
        }
        let waits = |row: &&Way| {
            let place = parked.get(&(row.consumer.as_str(), row.key.as_str()));
            row.parked || place.is_some_and(|place| *place < row.position)
        };
        let rows = rows.iter().filter(|row| !waits(row));
        moving.extend(rows.map(|row| format!("{table}: {row:?}")));
    }
    let replaying = |letter: &&Letter| letter.state == "replaying";
    let letters = found.letters.iter().filter(replaying);
    moving.extend(letters.map(|letter| format!("letter: {letter:?}")));
    let full = |queue: &&Queue| queue.ready + queue.unacknowledged > 0;
    moving.extend(queues.iter().filter(full).map(|queue| format!("{queue:?}")));
    moving
}

impl Contract {
    fn takers_of(&self, message_type: &str) -> &[&'static str] {
        let mut takers = self.takers.iter();
        let takers = takers.find(|(it, _)| *it == message_type);
        takers.map_or(&[], |(_, takers)| takers)
    }
}

/// G1: sent, and on its way to the broker or there, once.
fn atomic(found: &Snapshot, verdict: &mut Verdict) {
    let mut here: HashMap<&str, usize> = HashMap::new();
    for way in [&found.scheduled, &found.outbox, &found.dispatched] {
        way.iter()
            .for_each(|row| *here.entry(&row.id).or_default() += 1);
    }
    let at_dispatch = |letter: &&Letter| letter.consumer.is_empty();
    for letter in found.letters.iter().filter(at_dispatch) {
        *here.entry(&letter.id).or_default() += 1;
    }
    for sent in &found.sent {
        match here.remove(sent.id.as_str()) {
            Some(1) => {}
            None => {
                verdict.lost += 1;
                verdict.say(format!("G1 committed and in no table: {sent:?}"));
            }
            Some(times) => verdict.say(format!("G1 {times} times on its way: {sent:?}")),
        }
    }
    for (id, _) in here {
        verdict.say(format!(
            "G1 on its way, and no transaction that sent it: {id}"
        ));
    }
}

/// G2: what a consumer has got is in one place.
fn placed(contract: &Contract, found: &Snapshot, verdict: &mut Verdict) {
    let mut places: HashMap<(&str, &str), Vec<&str>> = HashMap::new();
    let took = found.took.iter().map(|it| (&it.consumer, &it.id, "effect"));
    let retry = found.retry.iter().filter(|row| !row.parked);
    let retry = retry.map(|row| (&row.consumer, &row.id, "retry"));
    let dead = found.letters.iter().filter(|letter| {
        !letter.consumer.is_empty() && matches!(&*letter.state, "dead" | "discarded")
    });
    let dead = dead.map(|letter| (&letter.consumer, &letter.id, "dead letter"));
    for (consumer, id, place) in took.chain(retry).chain(dead) {
        places.entry((consumer, id)).or_default().push(place);
    }
    let inbox: HashSet<(&str, &str)> = found
        .inbox
        .iter()
        .map(|row| (row.consumer.as_str(), row.id.as_str()))
        .collect();
    for it in &inbox {
        let here = places.get(it).map_or(&[][..], |here| here);
        if here.len() != 1 {
            // Effects that are there twice are counted by G3.
            verdict.lost += usize::from(here.is_empty());
            verdict.say(format!(
                "G2 handled by {} and to be found at {here:?}: {}",
                it.0, it.1
            ));
        }
    }
    for (it, here) in &places {
        if !inbox.contains(it) {
            verdict.say(format!(
                "G3 {here:?} of {} without an inbox row: {}",
                it.0, it.1
            ));
        }
    }
    if contract.queues_in_database {
        queued(contract, found, &inbox, verdict);
    }
}

/// G2 on the database broker: what was dispatched is in the inbox or in the queue.
fn queued(
    contract: &Contract,
    found: &Snapshot,
    inbox: &HashSet<(&str, &str)>,
    verdict: &mut Verdict,
) {
    let queue: HashSet<(&str, &str)> = found
        .queue
        .iter()
        .map(|row| (row.consumer.as_str(), row.id.as_str()))
        .collect();
    let dispatched: HashSet<&str> = found.dispatched.iter().map(|row| row.id.as_str()).collect();
    let sent = |sent: &&Sent| dispatched.contains(sent.id.as_str());
    for sent in found.sent.iter().filter(sent) {
        for &consumer in contract.takers_of(&sent.message_type) {
            let it = (consumer, sent.id.as_str());
            if !inbox.contains(&it) && !queue.contains(&it) {
                verdict.lost += 1;
                verdict.say(format!(
                    "G2 dispatched and in no queue of {consumer}: {sent:?}"
                ));
            }
        }
    }
}

/// G3: one effect a message and consumer, one answer an effect.
fn once(contract: &Contract, found: &Snapshot, verdict: &mut Verdict) {
    let mut effects: HashMap<(&str, &str), usize> = HashMap::new();
    for took in &found.took {
        *effects.entry((&took.consumer, &took.id)).or_default() += 1;
    }
    for ((consumer, id), times) in effects.iter().filter(|(_, times)| **times > 1) {
        verdict.doubled += times - 1;
        verdict.say(format!("G3 {times} effects at {consumer}: {id}"));
    }
    let sent: HashMap<&str, &Sent> = found.sent.iter().map(|it| (it.id.as_str(), it)).collect();
    for took in &found.took {
        let sent = sent.get(took.id.as_str());
        let is_its = sent.is_some_and(|sent| {
            let takers = contract.takers_of(&sent.message_type);
            takers.contains(&took.consumer.as_str())
                && (&sent.key, sent.number) == (&took.key, took.number)
        });
        match sent {
            Some(sent) if is_its && sent.hash != took.hash => {
                verdict.say(format!("G8 handled as another payload: {took:?}, {sent:?}"));
            }
            Some(_) if is_its => {}
            _ => verdict.say(format!("G1 an effect of nothing: {took:?}")),
        }
    }
    for answer in &contract.answers {
        answered(answer, found, verdict);
    }
}

fn answered(answer: &Answer, found: &Snapshot, verdict: &mut Verdict) {
    let mut open: HashMap<(String, i64), i64> = HashMap::new();
    for took in found.took.iter().filter(|took| took.consumer == answer.of) {
        let key = took.key.replacen(answer.key.0, answer.key.1, 1);
        *open.entry((key, took.number)).or_default() += 1;
    }
    let answers = found.sent.iter();
    for sent in answers.filter(|sent| sent.message_type == answer.message_type) {
        *open.entry((sent.key.clone(), sent.number)).or_default() -= 1;
    }
    for ((key, number), missing) in open.into_iter().filter(|(_, missing)| *missing != 0) {
        let what = answer.message_type;
        verdict.doubled += usize::try_from(-missing).unwrap_or_default();
        verdict.lost += usize::try_from(missing).unwrap_or_default();
        verdict.say(format!(
            "G3 {missing} answers {what} missing of key {key}, number {number}"
        ));
    }
}

/// G4: one after another, each having seen the one before.
fn ordered(found: &Snapshot, verdict: &mut Verdict) {
    let mut keys: BTreeMap<(&str, &str), Vec<&Took>> = BTreeMap::new();
    for took in found.took.iter().filter(|took| !took.key.is_empty()) {
        keys.entry((&took.consumer, &took.key))
            .or_default()
            .push(took);
    }
    for ((consumer, key), effects) in keys {
        let mut last = 0;
        for took in effects {
            // A second effect of the same message is G3's.
            let again = took.number == last;
            if !again && (took.number != last + 1 || took.seen != last) {
                verdict.out_of_order += 1;
                verdict.say(format!(
                    "G4 at {consumer}, key {key}: after number {last} came {took:?}"
                ));
            }
            last = last.max(took.number);
        }
    }
}

/// G5: nothing fails but what has a handler that fails, and that no oftener than it should.
fn isolated(contract: &Contract, found: &Snapshot, verdict: &mut Verdict) {
    let sent: HashMap<&str, &Sent> = found.sent.iter().map(|it| (it.id.as_str(), it)).collect();
    let failures = |consumer: &str, id: &str| {
        let sent = sent.get(id)?;
        let first = contract.takers_of(&sent.message_type).first();
        Some(if first == Some(&consumer) {
            sent.failures
        } else {
            0
        })
    };
    for took in &found.took {
        let expected = failures(&took.consumer, &took.id)
            .unwrap_or_default()
            .max(0)
            + 1;
        if took.attempt != expected {
            verdict.say(format!(
                "G5 not try {expected}, as its handler has it: {took:?}"
            ));
        }
    }
    for row in found.retry.iter().filter(|row| !row.parked) {
        let most = failures(&row.consumer, &row.id).unwrap_or_default();
        if most >= 0 && row.attempts > most {
            verdict.say(format!("G5 more attempts than failures: {row:?}"));
        }
    }
    for letter in &found.letters {
        // What processes have died of again and again is set aside by design, whoever killed them.
        let by_kills = matches!(&*letter.reason, "killed_process" | "delivery_limit");
        let dies = failures(&letter.consumer, &letter.id).is_some_and(|failures| failures < 0);
        if !dies && !by_kills {
            let (number, error) = (letter.number, &letter.error);
            verdict.say(format!(
                "G5 no handler failed for good, letter {number}: {error}"
            ));
        }
    }
}

/// G7: limits.
fn bounded(contract: &Contract, found: &Snapshot, queues: &[Queue], verdict: &mut Verdict) {
    let mut held: HashMap<(&str, &str), usize> = HashMap::new();
    for row in found.retry.iter().filter(|row| !row.key.is_empty()) {
        *held.entry((&row.consumer, &row.key)).or_default() += 1;
    }
    for ((consumer, key), rows) in held {
        // A batch that was taken when the limit was not reached may pass it.
        if rows > contract.held_max + 1 + contract.prefetch as usize {
            verdict.say(format!(
                "G7 {rows} messages wait behind the key {key} of {consumer}"
            ));
        }
    }
    for queue in queues {
        if queue.unacknowledged > contract.prefetch {
            let (name, most) = (&queue.name, contract.prefetch);
            let count = queue.unacknowledged;
            verdict.say(format!(
                "G7 {count} unacknowledged of {name}, more than {most}"
            ));
        }
    }
}
