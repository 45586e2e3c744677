//! Judges a snapshot of the tables by the model. Knows nothing of Posta, nor of who drove it.

use super::model::{Model, Sent};
use super::tables::{Letter, Row, Snapshot};

/// Every rule that a snapshot breaks, at any moment of a run, in words.
pub(super) fn judge(model: &Model, found: &Snapshot) -> Vec<String> {
    let mut broken = Vec::new();
    for sent in &model.sent {
        for consumer in sent.kind.consumers() {
            broken.extend(in_one_place(model, found, sent, consumer));
        }
    }
    broken.extend(nothing_foreign(model, found));
    broken.extend(in_order(model, found));
    broken.extend(letters_have_their_rows(found));
    broken.extend(letters_have_their_reasons(model, found));
    broken.extend(on_record(model, found));
    broken
}

/// G2 and G3: at every moment a message is in exactly one place.
fn in_one_place(
    model: &Model,
    found: &Snapshot,
    sent: &Sent,
    consumer: &'static str,
) -> Option<String> {
    let mut here = Vec::new();
    let mut note = |place: &str, count: usize| here.extend(vec![place.to_owned(); count]);
    let of = |rows: &[Row]| {
        let is_it = |row: &&Row| row.id == sent.id && !row.parked;
        let is_ours = |row: &&Row| row.consumer.is_empty() || row.consumer == consumer;
        rows.iter().filter(is_it).filter(is_ours).count()
    };
    let letters = |at: &str| {
        let is_it = |letter: &&Letter| letter.id == sent.id && letter.consumer == at;
        let is_set_aside = |letter: &&Letter| matches!(&*letter.state, "dead" | "discarded");
        found
            .letters
            .iter()
            .filter(is_it)
            .filter(is_set_aside)
            .count()
    };
    let effects = found.effects.iter();
    let effects = effects.filter(|effect| effect.id == sent.id && effect.consumer == consumer);
    note("effect", effects.count());
    note("retry", of(&found.retry));
    note("dead letter", letters(consumer));
    let at_its_end = here.len();
    let mut note = |place: &str, count: usize| here.extend(vec![place.to_owned(); count]);
    note("scheduled", of(&found.scheduled));
    note("outbox", of(&found.outbox));
    note("queue", of(&found.queue));
    note("dead letter of dispatch", letters(""));
    let as_it_should = match (sent.cancelled, model.redispatched) {
        (true, _) => here.is_empty(),
        (false, false) => here.len() == 1,
        // A copy may be on its way to where it will be refused.
        (false, true) => at_its_end <= 1 && !here.is_empty(),
    };
    let what = if sent.cancelled { "cancelled" } else { "sent" };
    (!as_it_should).then(|| format!("{what} {} at {consumer}: {here:?}", name(model, &sent.id)))
}

/// Nothing is there that nobody sent.
fn nothing_foreign(model: &Model, found: &Snapshot) -> Vec<String> {
    let effects = found
        .effects
        .iter()
        .map(|effect| (&effect.id, &effect.consumer));
    let rows = [&found.queue, &found.retry].into_iter().flatten();
    let known = |(id, consumer): (&String, &String)| {
        let sent = model.sent.iter().find(|sent| sent.id == *id);
        sent.is_some_and(|sent| sent.kind.consumers().contains(&consumer.as_str()))
    };
    effects
        .chain(rows.map(|row| (&row.id, &row.consumer)))
        .filter(|it| !known(*it))
        .map(|(id, consumer)| format!("{consumer} has {id}, which was not sent to it"))
        .collect()
}

/// G4: before a message takes effect, all earlier ones of its key have, unless their key went on
/// without them; and its handler has seen them.
fn in_order(model: &Model, found: &Snapshot) -> Vec<String> {
    let mut broken = Vec::new();
    for ((consumer, key), order) in model.orders() {
        let effect_of = |sent: &Sent| {
            let mut effects = found.effects.iter();
            effects.find(|effect| effect.id == sent.id && effect.consumer == consumer)
        };
        let mut before: Vec<&Sent> = Vec::new();
        for sent in order.into_iter().filter(|sent| !sent.cancelled) {
            if let Some(effect) = effect_of(sent) {
                for earlier in &before {
                    if effect_of(earlier).is_none_or(|it| it.position >= effect.position) {
                        broken.push(format!(
                            "{consumer}, key {key}: {} took effect before {}",
                            name(model, &sent.id),
                            name(model, &earlier.id)
                        ));
                    }
                }
                if effect.seen < before.len() as i64 {
                    broken.push(format!(
                        "{consumer}, key {key}: {} saw {} effects, not the {} before it",
                        name(model, &sent.id),
                        effect.seen,
                        before.len()
                    ));
                }
            }
            if !was_let_go(found, sent, consumer) {
                before.push(sent);
            }
        }
    }
    broken
}

/// Whether a key went on without this message, at dispatch or at the consumer.
fn was_let_go(found: &Snapshot, sent: &Sent, consumer: &str) -> bool {
    let mut letters = found.letters.iter().filter(|letter| {
        letter.id == sent.id && (letter.consumer.is_empty() || letter.consumer == consumer)
    });
    letters.any(|letter| {
        let actions: Vec<String> = found
            .actions
            .iter()
            .filter(|action| action.letter == Some(letter.number))
            .map(|action| action.name.clone())
            .collect();
        Model::may_be_overtaken(sent.kind, &actions)
    })
}

/// A parked letter has its place, and a place its letter; a letter that is replayed has its row.
fn letters_have_their_rows(found: &Snapshot) -> Vec<String> {
    let mut broken = Vec::new();
    let rows: Vec<&Row> = found.outbox.iter().chain(&found.retry).collect();
    for letter in &found.letters {
        let count = |parked: bool| {
            rows.iter()
                .filter(|row| row.letter == Some(letter.number) && row.parked == parked)
                .filter(|row| row.consumer == letter.consumer)
                .count()
        };
        let expected = match (&*letter.state, letter.parked) {
            ("dead", true) => (1, 0),
            ("replaying", _) => (0, 1),
            _ => (0, 0),
        };
        if (count(true), count(false)) != expected {
            broken.push(format!(
                "{letter:?} has {} places and {} rows",
                count(true),
                count(false)
            ));
        }
    }
    let orphans = rows.iter().filter(|row| {
        let is_its = |letter: &Letter| Some(letter.number) == row.letter;
        row.parked && !found.letters.iter().any(is_its)
    });
    broken.extend(orphans.map(|row| format!("{row:?} is nobody's place")));
    broken
}

/// Only what failed is set aside, and what is discarded is so by somebody's word.
fn letters_have_their_reasons(model: &Model, found: &Snapshot) -> Vec<String> {
    let mut broken = Vec::new();
    for letter in &found.letters {
        let consumer = (!letter.consumer.is_empty()).then_some(&*letter.consumer);
        let sent = model.sent.iter().find(|sent| sent.id == letter.id);
        if !sent.is_some_and(|sent| model.may_die(sent, consumer, &letter.reason)) {
            broken.push(format!(
                "{} should not have died: {letter:?}",
                name(model, &letter.id)
            ));
        }
        let mut last = found.actions.iter().rev().filter(|action| {
            action.letter == Some(letter.number) && matches!(&*action.name, "discard" | "restore")
        });
        let discarded = last.next().is_some_and(|action| action.name == "discard");
        if discarded != (letter.state == "discarded") {
            broken.push(format!("the record says otherwise of {letter:?}"));
        }
    }
    broken
}

/// Every action is on record, and none that did not happen.
fn on_record(model: &Model, found: &Snapshot) -> Vec<String> {
    let recorded = |name: &str| {
        let actions = found.actions.iter();
        actions.filter(|action| action.name == name).count()
    };
    let names = [
        "skip",
        "discard",
        "restore",
        "begin-run",
        "pause",
        "resume",
        "cancel",
    ];
    names
        .into_iter()
        .map(|name| (name, model.actions.get(name).copied().unwrap_or_default()))
        .filter(|(name, done)| recorded(name) != *done)
        .map(|(name, done)| format!("{done} times {name}, on record {}", recorded(name)))
        .collect()
}

/// What keeps a snapshot from being at rest: rows that can go on. A row waits rightly only behind
/// the place of a dead letter of its key (G5).
pub(super) fn restless(found: &Snapshot) -> Vec<String> {
    let mut moving: Vec<String> = Vec::new();
    for (table, rows) in [("scheduled", &found.scheduled), ("queue", &found.queue)] {
        moving.extend(rows.iter().map(|row| format!("{table}: {row:?}")));
    }
    for (table, rows) in [("outbox", &found.outbox), ("retry", &found.retry)] {
        for row in rows.iter().filter(|row| !row.parked) {
            let waits = rows.iter().any(|head| {
                head.parked
                    && (&head.consumer, &head.key) == (&row.consumer, &row.key)
                    && head.position < row.position
            });
            if !waits {
                moving.push(format!("{table}: {row:?}"));
            }
        }
    }
    moving
}

/// After everything was healed and replayed: what has neither taken effect nor was discarded or
/// cancelled.
pub(super) fn missing(model: &Model, found: &Snapshot) -> Vec<String> {
    let mut missing = Vec::new();
    for sent in model.sent.iter().filter(|sent| !sent.cancelled) {
        for consumer in sent.kind.consumers() {
            let has_effect = found
                .effects
                .iter()
                .any(|effect| effect.id == sent.id && effect.consumer == *consumer);
            let is_discarded = found.letters.iter().any(|letter| {
                letter.id == sent.id
                    && letter.state == "discarded"
                    && (letter.consumer.is_empty() || letter.consumer == *consumer)
            });
            if has_effect == is_discarded {
                missing.push(format!("{} at {consumer}", name(model, &sent.id)));
            }
        }
    }
    missing
}

/// A message in few words.
fn name(model: &Model, id: &str) -> String {
    match model.sent.iter().position(|sent| sent.id == id) {
        Some(number) => {
            let sent = &model.sent[number];
            format!("{number} ({:?}, key {:?}, {id})", sent.kind, sent.key)
        }
        None => format!("{id}, which nobody sent"),
    }
}
