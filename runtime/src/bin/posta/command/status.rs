use posta::layout::Layout;
use posta::operations::Operator;
use posta::store::Database;

use super::layout::in_words;
use super::runs;
use crate::exit::Failed;
use crate::moment::span;
use crate::print::fields::Fields;
use crate::print::json;
use crate::print::table::{number, table, text};
use crate::print::text::{counted, printable};

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
                    consumer.layout.as_ref().map(in_words).unwrap_or_default(),
                    consumer.handled.to_string(),
                    consumer.held.to_string(),
                    consumer.held_keys.to_string(),
                    consumer.dead_letters.to_string(),
                ]
            })
            .collect();
        let columns = [
            text("consumer", 12),
            text("partitions", 10),
            number("handled"),
            number("on hold"),
            number("keys on hold"),
            number("dead letters"),
        ];
        answer = format!("{answer}\n{}", table(&columns, &rows));
        for consumer in &overview.consumers {
            let wishes = consumer.layout.as_ref().map(Layout::other_wishes);
            if let Some(wishes) = wishes.filter(|wishes| !wishes.is_empty()) {
                let name = printable(&consumer.name);
                answer += &format!("{name}: wished are {} processes\n", wishes.join(", "));
            }
        }
    }
    if !overview.runs.is_empty() {
        answer = format!("{answer}\n{}", runs::rows(&overview.runs));
    }
    Ok(answer)
}
