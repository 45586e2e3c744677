use posta::operations::Operator;
use posta::operations::operator::{IDS_MAX, PAGE_MAX};
use posta::store::{Database, DeadLetter, LetterFilter, LetterId, LetterState};
use serde_json::{Value, json};

use super::letters::rows;
use crate::confirm::confirmed;
use crate::exit::Failed;
use crate::flags::{EndFlags, Selected};
use crate::print::json;
use crate::print::text::counted;
use crate::tell;

/// Letters that are shown before they are changed, at most.
const SHOWN_MAX: usize = 20;

/// What is done to letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Skip,
    Discard,
    Restore,
    Recall,
}

impl End {
    const fn verb(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Discard => "discard",
            Self::Restore => "restore",
            Self::Recall => "recall",
        }
    }

    const fn done(self) -> &'static str {
        match self {
            Self::Skip => "skipped",
            Self::Discard => "discarded",
            Self::Restore => "restored",
            Self::Recall => "recalled",
        }
    }
}

/// Skips, discards, restores or recalls letters.
pub(crate) async fn end<D: Database>(
    operator: &Operator<D>,
    end: End,
    flags: &EndFlags,
    as_json: bool,
) -> Result<String, Failed> {
    let letters = named_or_found(operator, end, &flags.selected).await?;
    if letters.is_empty() {
        return Err(Failed::Nothing(
            "no letter in the selection can be changed so",
        ));
    }
    let (verb, behind) = (end.verb(), letters.iter().map(|found| found.successors));
    let behind: u64 = behind.sum();
    let plan = match as_json {
        true => {
            let letters: Value = letters.iter().map(json::letter).collect();
            json::line(
                &json!({"dry_run": {"action": verb, "successors": behind, "letters": letters}}),
            )
        }
        false => {
            let shown = rows(&letters[..letters.len().min(SHOWN_MAX)]);
            let more = letters.len().saturating_sub(SHOWN_MAX);
            let more = match more {
                0 => String::new(),
                more => format!("… {more} more\n"),
            };
            let count = counted(letters.len() as u64, "letter");
            format!("would {verb} {count}; {behind} wait behind\n\n{shown}{more}")
        }
    };
    if !confirmed(&flags.deed, as_json, &plan).await? {
        return Ok(String::new());
    }
    let ids: Vec<LetterId> = letters.iter().map(|letter| letter.id).collect();
    for (chunk, some) in ids.chunks(IDS_MAX).enumerate() {
        let reason = &flags.deed.reason;
        let ended = match end {
            End::Skip => operator.skip(some, reason).await,
            End::Discard => operator.discard(some, reason).await,
            End::Restore => operator.restore(some, reason).await,
            End::Recall => operator.recall(some, reason).await,
        };
        if ended.is_err() && chunk > 0 {
            let (before, done) = (chunk * IDS_MAX, end.done());
            let all = counted(ids.len() as u64, "letter");
            tell(&format!(
                "posta: {before} of {all} {done}, then it broke off\n"
            ));
        }
        ended?;
    }
    Ok(match as_json {
        true => {
            let ids: Value = ids.iter().map(|id| id.0).collect();
            json::line(&json!({"action": verb, "letters": ids}))
        }
        false => format!("{} {}\n", counted(ids.len() as u64, "letter"), end.done()),
    })
}

/// Letters that are named, whatever their state, so that a wrong one is an error; or those of a
/// selection that are in the right state.
async fn named_or_found<D: Database>(
    operator: &Operator<D>,
    end: End,
    selected: &Selected,
) -> Result<Vec<DeadLetter>, Failed> {
    if !selected.letters.is_empty() && selected.filter.is_empty() {
        let mut ids = selected.letters.clone();
        ids.sort_unstable();
        ids.dedup();
        let mut letters = Vec::with_capacity(ids.len());
        for letter in ids {
            letters.push(operator.show(LetterId(letter), 0).await?.letter);
        }
        return Ok(letters);
    }
    let state = match end {
        End::Skip | End::Discard => LetterState::Dead,
        End::Restore => LetterState::Discarded,
        End::Recall => LetterState::Replaying,
    };
    let mut filter = select::<D>(operator, selected, &[state]).await?;
    if end == End::Skip && filter.parked.replace(true) == Some(false) {
        return Err(Failed::Usage(
            "only letters that their keys wait for can be skipped: leave out --not-parked"
                .to_owned(),
        ));
    }
    let mut letters: Vec<DeadLetter> = Vec::new();
    loop {
        let after = letters.last().map(|letter| letter.id);
        let mut page = operator.letters(&filter, after, PAGE_MAX.min(200)).await?;
        if page.is_empty() {
            return Ok(letters);
        }
        // Payloads are not looked at, and may be large.
        for letter in &mut page {
            letter.message.payload = Default::default();
        }
        letters.append(&mut page);
    }
}

/// The filter of a selection, which must not be everything by accident.
pub(crate) async fn select<D: Database>(
    operator: &Operator<D>,
    selected: &Selected,
    states: &[LetterState],
) -> Result<LetterFilter, Failed> {
    if selected.letters.is_empty() && selected.filter.is_empty() && !selected.all {
        return Err(Failed::Usage(
            "which letters? Name them, give a filter, or --all".to_owned(),
        ));
    }
    selected
        .filter
        .filter::<D>(operator.store(), &selected.letters, states)
        .await
}
