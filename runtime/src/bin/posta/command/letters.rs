use posta::operations::Operator;
use posta::operations::operator::Shown;
use posta::store::{Database, DeadLetter, LetterId, LetterState};

use crate::exit::Failed;
use crate::flags::{GroupsFlags, ListFlags, ShowFlags};
use crate::moment::{minutes, seconds, span};
use crate::print::fields::Fields;
use crate::print::table::{noted, number, table, text, whole};
use crate::print::{json, or_dash, origin, payload};
use crate::say;

const NOTHING: &str = "no dead letter is in the selection";

/// Lists letters.
pub(crate) async fn list<D: Database>(
    operator: &Operator<D>,
    flags: &ListFlags,
    as_json: bool,
) -> Result<String, Failed> {
    let states: Vec<LetterState> = flags.state.iter().copied().map(Into::into).collect();
    let filter = flags
        .filter
        .filter::<D>(operator.store(), &[], &states)
        .await?;
    let limit = usize::from(flags.limit);
    let after = flags.after.map(LetterId);
    let letters = operator.letters(&filter, after, limit).await?;
    if letters.is_empty() {
        return Err(Failed::Nothing(NOTHING));
    }
    if as_json {
        return Ok(json::lines(letters.iter().map(json::letter)));
    }
    let mut answer = rows(&letters);
    if letters.len() == limit
        && let Some(last) = letters.last()
    {
        answer = format!("{answer}\nthe next page: --after {}\n", last.id);
    }
    Ok(answer)
}

/// Letters as a table, each with its error below it.
pub(crate) fn rows(letters: &[DeadLetter]) -> String {
    let states = letters
        .iter()
        .any(|letter| letter.state != LetterState::Dead);
    let rows: Vec<Vec<String>> = letters
        .iter()
        .map(|letter| {
            let what = match letter.state {
                LetterState::Dead => letter.reason.clone(),
                state => state.as_str().to_owned(),
            };
            vec![
                letter.id.to_string(),
                minutes(letter.dead_at),
                origin(&letter.origin),
                or_dash(letter.message.message_type.as_deref()),
                or_dash(letter.message.key.as_deref()),
                match letter.parked {
                    true => format!("+{}", letter.successors),
                    false => "-".to_owned(),
                },
                letter.attempts.to_string(),
                what,
            ]
        })
        .collect();
    let columns = [
        number("letter"),
        whole("dead since"),
        text("consumer", 8),
        text("type", 10),
        text("key", 6),
        number("parked"),
        number("tries"),
        text(if states { "kind, state" } else { "kind" }, 11),
    ];
    let notes: Vec<&str> = letters.iter().map(|letter| letter.error.as_str()).collect();
    noted(&columns, &rows, &notes)
}

/// Counts letters that are alike.
pub(crate) async fn groups<D: Database>(
    operator: &Operator<D>,
    flags: &GroupsFlags,
    as_json: bool,
) -> Result<String, Failed> {
    let filter = flags.filter.filter::<D>(operator.store(), &[], &[]).await?;
    let groups = operator.groups(&filter, flags.limit.into()).await?;
    if groups.is_empty() {
        return Err(Failed::Nothing(NOTHING));
    }
    if as_json {
        return Ok(json::lines(groups.iter().map(json::group)));
    }
    let rows: Vec<Vec<String>> = groups
        .iter()
        .map(|group| {
            vec![
                group.letters.to_string(),
                group.keys_parked.to_string(),
                group.successors.to_string(),
                minutes(group.oldest),
                origin(&group.origin),
                or_dash(group.message_type.as_deref()),
                group.reason.clone(),
            ]
        })
        .collect();
    let columns = [
        number("letters"),
        number("keys parked"),
        number("behind"),
        whole("oldest"),
        text("consumer", 10),
        text("type", 12),
        text("kind", 11),
    ];
    let notes: Vec<&str> = groups
        .iter()
        .map(|group| group.fingerprint.as_str())
        .collect();
    Ok(noted(&columns, &rows, &notes))
}

/// Shows one letter, or writes a payload.
pub(crate) async fn show<D: Database>(
    operator: &Operator<D>,
    flags: &ShowFlags,
    as_json: bool,
) -> Result<String, Failed> {
    let letter = LetterId(flags.letter);
    let shown = operator.show(letter, flags.successors.into()).await?;
    if flags.payload {
        let number = flags.revision.unwrap_or(shown.letter.revision);
        let revision = shown
            .revisions
            .iter()
            .find(|revision| revision.number == number);
        let payload = match revision {
            Some(revision) => &revision.payload,
            None if number == shown.letter.revision => &shown.letter.message.payload,
            None => {
                let problem = format!("letter {letter} has no revision {number}");
                return Err(Failed::Usage(problem));
            }
        };
        say(payload)?;
        return Ok(String::new());
    }
    if as_json {
        return Ok(json::line(&json::shown(&shown)));
    }
    Ok(text_of(&shown))
}

fn text_of(shown: &Shown) -> String {
    let letter = &shown.letter;
    let message = &letter.message;
    let mut fields = Fields::default();
    let state = match (letter.state, letter.parked) {
        (state, true) => format!(
            "{}, its key waits: {} behind it",
            state.as_str(),
            letter.successors
        ),
        (state, false) => state.as_str().to_owned(),
    };
    fields
        .add("letter", letter.id.to_string())
        .add("state", state)
        .add("consumer", origin(&letter.origin))
        .add("message id", or_dash(message.id.as_deref()))
        .add(
            "type",
            match message.version {
                Some(version) => {
                    format!(
                        "{} version {version}",
                        or_dash(message.message_type.as_deref())
                    )
                }
                None => or_dash(message.message_type.as_deref()),
            },
        )
        .add("key", or_dash(message.key.as_deref()))
        .maybe("enqueued", message.enqueued_at.map(seconds))
        .maybe("first failed", letter.first_failed_at.map(seconds))
        .add("dead since", seconds(letter.dead_at))
        .maybe("ended", letter.ended_at.map(seconds))
        .add(
            "attempts",
            format!("{}, replayed {} times", letter.attempts, letter.replays),
        )
        .add("kind", &letter.reason)
        .add("error", &letter.error)
        .add("fingerprint", &letter.fingerprint);
    for (name, value) in &message.headers {
        fields.add("header", format!("{name}: {value}"));
    }
    fields.add(
        "payload",
        format!(
            "{} bytes, {}, revision {}",
            message.payload.len(),
            message.content_type.as_deref().unwrap_or("no content type"),
            letter.revision
        ),
    );
    let mut answer = fields.text().to_owned();
    answer.push_str(&payload::shown(&message.payload));
    if shown.revisions.iter().any(|revision| revision.number > 0) {
        let rows: Vec<Vec<String>> = shown
            .revisions
            .iter()
            .map(|revision| {
                vec![
                    revision.number.to_string(),
                    seconds(revision.revised_at),
                    revision.payload.len().to_string(),
                    revision.who.clone(),
                    revision.reason.clone(),
                ]
            })
            .collect();
        let columns = [
            number("revision"),
            whole("at"),
            number("bytes"),
            text("who", 8),
            text("reason", 16),
        ];
        answer = format!("{answer}\n{}", table(&columns, &rows));
    }
    if !shown.successors.is_empty() {
        let rows: Vec<Vec<String>> = shown
            .successors
            .iter()
            .map(|successor| {
                vec![
                    successor.message_id.clone(),
                    successor.message_type.clone(),
                    successor.payload_bytes.to_string(),
                    span(successor.waiting_for),
                ]
            })
            .collect();
        let columns = [
            whole("behind it, first"),
            text("type", 12),
            number("bytes"),
            number("waits for"),
        ];
        answer = format!("{answer}\n{}", table(&columns, &rows));
    }
    if !shown.actions.is_empty() {
        answer = format!("{answer}\n{}", super::record::rows(&shown.actions));
    }
    answer
}
