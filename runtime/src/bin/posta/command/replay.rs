use posta::operations::Operator;
use posta::operations::operator::{DryRun, HandlerPresence, OperatorError, RunOrder};
use posta::store::{Database, LetterId, RedispatchStore as _, Store as _};
use serde_json::json;
use time::OffsetDateTime;

use super::end::select;
use crate::confirm::confirmed;
use crate::exit::Failed;
use crate::flags::ReplayFlags;
use crate::moment::ago;
use crate::print::table::{number, table, text, whole};
use crate::print::text::{counted, cut, printable};
use crate::print::{COLUMNS, json, or_dash, origin};

/// Keys and doubts that a dry run shows to people, at most.
const SHOWN_MAX: usize = 20;

/// Replays one letter at once, or begins a run.
pub(crate) async fn replay<D: Database>(
    operator: &Operator<D>,
    flags: &ReplayFlags,
    as_json: bool,
) -> Result<String, Failed> {
    let operator = operator.clone().inbox_retention(flags.inbox_retention);
    let filter = select::<D>(&operator, &flags.selected, &[]).await?;
    let found = operator.dry_run(&filter).await?;
    let mut session = operator.store().begin_read().await?;
    let now = operator.store().now(&mut session).await?;
    session.commit().await?;
    let one = match flags.selected.letters[..] {
        [one] => Some(LetterId(one)),
        _ => None,
    };
    if found.letters == 0 {
        return match one {
            Some(letter) => Err(why_not(&operator, letter).await),
            None => Err(OperatorError::NothingSelected.into()),
        };
    }
    let plan = match as_json {
        true => json::line(&json!({"dry_run": json::dry_run(&found)})),
        false => text_of(&found, now),
    };
    if !confirmed(&flags.deed, as_json, &plan).await? {
        return Ok(String::new());
    }
    let order = RunOrder {
        rate: flags.rate,
        failures_max: flags.failures_max,
    };
    if let Some(letter) = one.filter(|_| order == RunOrder::default()) {
        operator.replay(letter, &flags.deed.reason).await?;
        return Ok(match as_json {
            true => json::line(&json!({"action": "replay", "letter": letter.0})),
            false => format!("letter {letter} is on its way\n"),
        });
    }
    let (run, letters) = operator
        .begin_run(&filter, order, &flags.deed.reason)
        .await?;
    Ok(match as_json {
        true => json::line(&json!({"action": "begin-run", "run": run.0, "letters": letters})),
        false => format!(
            "replay run {run} has {}; the running services carry it out: \
             posta replay-runs show {run}\n",
            counted(letters, "letter")
        ),
    })
}

/// Why a letter is not in a selection of dead letters.
async fn why_not<D: Database>(operator: &Operator<D>, letter: LetterId) -> Failed {
    match operator.show(letter, 0).await {
        Ok(shown) => OperatorError::LetterState {
            letter,
            state: shown.letter.state,
            needed: "dead, and in the selection",
        }
        .into(),
        Err(error) => error.into(),
    }
}

/// Whether a type has a handler, and how long ago a process said so.
fn presence(handler: &HandlerPresence, now: OffsetDateTime) -> String {
    let word = json::presence(handler);
    match json::announced_at(handler) {
        Some(at) => format!("{word} {}", ago((now - at).try_into().unwrap_or_default())),
        None => word.to_owned(),
    }
}

fn text_of(found: &DryRun, now: OffsetDateTime) -> String {
    let mut answer = format!(
        "{} of {}, {} without a key; {} more wait behind\n",
        counted(found.letters, "letter"),
        counted(found.keys_total, "key"),
        found.without_key,
        found.successors
    );
    let rows: Vec<Vec<String>> = found
        .types
        .iter()
        .map(|share| {
            vec![
                origin(&share.origin),
                or_dash(share.message_type.as_deref()),
                share.letters.to_string(),
                presence(&share.handler, now),
                share.decoding.to_string(),
                share.undecodable.to_string(),
                share.unknown.to_string(),
            ]
        })
        .collect();
    let columns = [
        text("consumer", 10),
        text("type", 12),
        number("letters"),
        whole("handler"),
        number("decode"),
        number("do not"),
        number("unknown"),
    ];
    answer = format!("{answer}\n{}", table(&columns, &rows));
    if !found.keys.is_empty() {
        let rows: Vec<Vec<String>> = found
            .keys
            .iter()
            .take(SHOWN_MAX)
            .map(|share| {
                vec![
                    share.key.clone(),
                    origin(&share.origin),
                    share.letters.to_string(),
                    if share.parked { "yes" } else { "no" }.to_owned(),
                    share.successors.to_string(),
                ]
            })
            .collect();
        let columns = [
            text("key", 16),
            text("consumer", 10),
            number("letters"),
            whole("parked"),
            number("behind"),
        ];
        answer = format!("{answer}\n{}", table(&columns, &rows));
        let more = found.keys_total.saturating_sub(SHOWN_MAX as u64);
        if more > 0 {
            answer = format!("{answer}… {more} more keys\n");
        }
    }
    let nobodys = found
        .types
        .iter()
        .filter(|share| share.handler == HandlerPresence::Absent);
    let flags = [
        (
            nobodys.map(|share| share.letters).sum(),
            "would wait until a process handles their type at their consumer",
        ),
        (found.invalid, "are no valid messages and would be left out"),
        (
            found.blocked,
            "wait for a letter that is not among these or is left out: a run leaves them out too",
        ),
        (
            found.older_than_retention,
            "failed before the inbox's retention began: a copy would pass as new",
        ),
    ];
    for (count, what) in flags {
        if count > 0 {
            answer = format!("{answer}\nbeware: {count} {what}\n");
        }
    }
    if !found.doubts.is_empty() {
        answer.push('\n');
    }
    for doubt in found.doubts.iter().take(SHOWN_MAX) {
        let line = printable(&format!("letter {}: {}", doubt.letter, doubt.problem));
        answer = format!("{answer}{}\n", cut(&line, COLUMNS));
    }
    if found.doubts.len() > SHOWN_MAX {
        answer = format!("{answer}… and more\n");
    }
    answer
}
