use posta::operations::Operator;
use posta::store::{Action, Database, LetterId};

use crate::exit::Failed;
use crate::flags::RecordFlags;
use crate::moment::seconds;
use crate::print::json;
use crate::print::table::{number, table, text, whole};

/// What operators did.
pub(crate) async fn record<D: Database>(
    operator: &Operator<D>,
    flags: &RecordFlags,
    as_json: bool,
) -> Result<String, Failed> {
    let letter = flags.letter.map(LetterId);
    let actions = operator.record(letter, flags.limit.into()).await?;
    if actions.is_empty() {
        return Err(Failed::Nothing("nothing is on record"));
    }
    if as_json {
        return Ok(json::lines(actions.iter().map(json::action)));
    }
    Ok(rows(&actions))
}

/// Actions as a table.
pub(crate) fn rows(actions: &[Action]) -> String {
    let number_of =
        |number: Option<i64>| number.map_or("-".to_owned(), |number| number.to_string());
    let rows: Vec<Vec<String>> = actions
        .iter()
        .map(|action| {
            let what = &action.what;
            vec![
                seconds(action.done_at),
                what.who.clone(),
                what.action.clone(),
                number_of(what.letter.map(|letter| letter.0)),
                number_of(what.run.map(|run| run.0)),
                what.reason.clone(),
                what.details.clone(),
            ]
        })
        .collect();
    let columns = [
        whole("done"),
        text("who", 8),
        whole("action"),
        number("letter"),
        number("run"),
        text("reason", 10),
        text("details", 10),
    ];
    table(&columns, &rows)
}
