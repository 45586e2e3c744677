use posta::operations::Operator;
use posta::store::Database;

use super::runs;
use crate::exit::Failed;
use crate::moment::span;
use crate::print::fields::Fields;
use crate::print::json;
use crate::print::table::{number, table, text};
use crate::print::text::counted;

/// What waits, what is on hold, what is dead.
pub(crate) async fn status<D: Database>(
    operator: &Operator<D>,
    as_json: bool,
) -> Result<String, Failed> {
    let overview = operator.overview().await?;
    if as_json {
        return Ok(json::line(&json::overview(&overview)));
    }
    let outbox = &overview.outbox;
    let mut fields = Fields::default();
    let oldest = match outbox.rows {
        0 => String::new(),
        _ => format!(", the oldest for {}", span(outbox.oldest)),
    };
    fields
        .add(
            "outbox",
            format!(
                "{} waiting{oldest}; {} on hold; {} parked; {}",
                outbox.rows,
                outbox.held,
                counted(outbox.parked, "key"),
                counted(overview.dispatch_dead_letters, "dead letter")
            ),
        )
        .add("scheduled", overview.scheduled.to_string());
    let mut answer = fields.text().to_owned();
    if !overview.consumers.is_empty() {
        let rows: Vec<Vec<String>> = overview
            .consumers
            .iter()
            .map(|consumer| {
                vec![
                    consumer.name.clone(),
                    consumer.handled.to_string(),
                    consumer.held.to_string(),
                    consumer.held_keys.to_string(),
                    consumer.dead_letters.to_string(),
                ]
            })
            .collect();
        let columns = [
            text("consumer", 12),
            number("handled"),
            number("on hold"),
            number("keys on hold"),
            number("dead letters"),
        ];
        answer = format!("{answer}\n{}", table(&columns, &rows));
    }
    if !overview.runs.is_empty() {
        answer = format!("{answer}\n{}", runs::rows(&overview.runs));
    }
    Ok(answer)
}
