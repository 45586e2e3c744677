use posta::layout::Layout;
use posta::operations::operator::{DryRun, HandlerPresence, KeyShare, Overview, Shown, TypeShare};
use posta::store::{
    Action, DeadLetter, LetterGroup, Origin, RedispatchPreview, ReplayRun, Revision,
};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::payload::hex;
use crate::moment::rfc3339;

/// One object on a line.
pub(crate) fn line(value: &Value) -> String {
    format!("{value}\n")
}

/// One object a line.
pub(crate) fn lines(values: impl IntoIterator<Item = Value>) -> String {
    values.into_iter().map(|value| line(&value)).collect()
}

fn time(at: Option<OffsetDateTime>) -> Value {
    at.map(rfc3339).into()
}

/// A consumer's name; null at dispatch.
fn consumer(origin: &Origin) -> Option<&str> {
    match origin {
        Origin::Dispatch => None,
        Origin::Consumer(name) => Some(name),
    }
}

/// A letter without its payload.
pub(crate) fn letter(letter: &DeadLetter) -> Value {
    let message = &letter.message;
    json!({
        "letter": letter.id.0,
        "consumer": consumer(&letter.origin),
        "state": letter.state.as_str(),
        "parked": letter.parked,
        "successors": letter.successors,
        "message_id": message.id,
        "type": message.message_type,
        "version": message.version,
        "key": message.key,
        "content_type": message.content_type,
        "payload_bytes": message.payload.len(),
        "enqueued_at": time(message.enqueued_at),
        "kind": letter.reason,
        "error": letter.error,
        "fingerprint": letter.fingerprint,
        "attempts": letter.attempts,
        "replays": letter.replays,
        "revision": letter.revision,
        "first_failed_at": time(letter.first_failed_at),
        "dead_at": rfc3339(letter.dead_at),
        "ended_at": time(letter.ended_at),
    })
}

/// A letter with all that is known of it.
pub(crate) fn shown(shown: &Shown) -> Value {
    let mut value = letter(&shown.letter);
    value["headers"] = json!(shown.letter.message.headers);
    payload(&mut value, &shown.letter.message.payload);
    value["revisions"] = shown.revisions.iter().map(revision).collect();
    value["actions"] = shown.actions.iter().map(action).collect();
    value["first_successors"] = shown
        .successors
        .iter()
        .map(|successor| {
            json!({
                "message_id": successor.message_id,
                "type": successor.message_type,
                "payload_bytes": successor.payload_bytes,
                "attempts": successor.attempts,
                "waiting_for_s": successor.waiting_for.as_secs(),
            })
        })
        .collect();
    value
}

/// The payload as text, if it is UTF-8, else in hexadecimal: either way byte for byte.
fn payload(value: &mut Value, payload: &[u8]) {
    match std::str::from_utf8(payload) {
        Ok(text) => value["payload"] = text.into(),
        Err(_) => value["payload_hex"] = hex(payload, "").into(),
    }
}

fn revision(revision: &Revision) -> Value {
    let mut value = json!({
        "revision": revision.number,
        "version": revision.version,
        "content_type": revision.content_type,
        "who": revision.who,
        "reason": revision.reason,
        "revised_at": rfc3339(revision.revised_at),
    });
    payload(&mut value, &revision.payload);
    value
}

pub(crate) fn action(action: &Action) -> Value {
    json!({
        "done_at": rfc3339(action.done_at),
        "who": action.what.who,
        "action": action.what.action,
        "letter": action.what.letter.map(|letter| letter.0),
        "run": action.what.run.map(|run| run.0),
        "reason": action.what.reason,
        "details": action.what.details,
    })
}

pub(crate) fn group(group: &LetterGroup) -> Value {
    json!({
        "consumer": consumer(&group.origin),
        "type": group.message_type,
        "kind": group.reason,
        "fingerprint": group.fingerprint,
        "letters": group.letters,
        "keys_parked": group.keys_parked,
        "successors": group.successors,
        "oldest": rfc3339(group.oldest),
        "newest": rfc3339(group.newest),
    })
}

pub(crate) fn run(run: &ReplayRun) -> Value {
    json!({
        "run": run.id.0,
        "state": run.state.as_str(),
        "waiting": run.counts.waiting,
        "replaying": run.counts.replaying,
        "replayed": run.counts.replayed,
        "failed": run.counts.failed,
        "left": run.counts.left,
        "rate": run.rate,
        "failures_max": run.failures_max,
        "selection": run.selection,
        "who": run.who,
        "reason": run.reason,
        "created_at": rfc3339(run.created_at),
        "ended_at": time(run.ended_at),
    })
}

pub(crate) fn dry_run(found: &DryRun) -> Value {
    json!({
        "letters": found.letters,
        "keys": found.keys_total,
        "without_key": found.without_key,
        "successors": found.successors,
        "invalid": found.invalid,
        "older_than_retention": found.older_than_retention,
        "blocked": found.blocked,
        "by_type": found.types.iter().map(share).collect::<Value>(),
        "by_key": found.keys.iter().map(key).collect::<Value>(),
        "doubts": found
            .doubts
            .iter()
            .map(|doubt| json!({"letter": doubt.letter.0, "problem": doubt.problem}))
            .collect::<Value>(),
    })
}

fn share(share: &TypeShare) -> Value {
    json!({
        "consumer": consumer(&share.origin),
        "type": share.message_type,
        "letters": share.letters,
        "handler": presence(&share.handler),
        "announced_at": announced_at(&share.handler).map(rfc3339),
        "decoding": share.decoding,
        "undecodable": share.undecodable,
        "unknown": share.unknown,
    })
}

fn key(key: &KeyShare) -> Value {
    json!({
        "consumer": consumer(&key.origin),
        "key": key.key,
        "letters": key.letters,
        "successors": key.successors,
        "parked": key.parked,
    })
}

/// Whether a type has a handler, in one word.
pub(crate) fn presence(presence: &HandlerPresence) -> &'static str {
    match presence {
        HandlerPresence::Here => "here",
        HandlerPresence::Announced { .. } => "announced",
        HandlerPresence::NotNeeded => "not needed",
        _ => "none",
    }
}

/// When a process said last that it has the handler, if none is known to run.
pub(crate) fn announced_at(presence: &HandlerPresence) -> Option<OffsetDateTime> {
    match presence {
        HandlerPresence::Announced { seen_at, .. } => Some(*seen_at),
        _ => None,
    }
}

pub(crate) fn preview(preview: &RedispatchPreview) -> Value {
    json!({
        "rows": preview.rows,
        "keys": preview.keys,
        "lacking": preview
            .lacking
            .iter()
            .map(|(consumer, rows)| json!({"consumer": consumer, "rows": rows}))
            .collect::<Value>(),
    })
}

pub(crate) fn layout(layout: &Layout) -> Value {
    json!({
        "number": layout.generation.number,
        "partitions": layout.generation.partitions,
        "step": layout.step.as_str(),
        "next": layout.next().map(|next| next.partitions),
        "wishes": layout.wishes.iter().map(|wish| wish.partitions).collect::<Vec<_>>(),
    })
}

pub(crate) fn overview(overview: &Overview) -> Value {
    json!({
        "outbox": {
            "waiting": overview.outbox.rows,
            "on_hold": overview.outbox.held,
            "keys_parked": overview.outbox.parked,
            "oldest_s": overview.outbox.oldest.as_secs_f64(),
            "dead_letters": overview.dispatch_dead_letters,
        },
        "scheduled": overview.scheduled,
        "consumers": overview
            .consumers
            .iter()
            .map(|consumer| json!({
                "consumer": consumer.name,
                "handled": consumer.handled,
                "on_hold": consumer.held,
                "keys_on_hold": consumer.held_keys,
                "dead_letters": consumer.dead_letters,
                "layout": consumer.layout.as_ref().map(layout),
            }))
            .collect::<Value>(),
        "replay_runs": overview.runs.iter().map(run).collect::<Value>(),
    })
}
