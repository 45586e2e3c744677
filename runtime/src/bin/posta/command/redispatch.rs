use std::io::IsTerminal as _;

use posta::operations::Operator;
use posta::operations::operator::RedispatchSelection;
use posta::store::{Database, RedispatchStore as _, Store as _};
use serde_json::json;

use crate::confirm::confirmed;
use crate::exit::Failed;
use crate::flags::RedispatchFlags;
use crate::moment::{rfc3339, seconds};
use crate::print::json;
use crate::print::table::{number, table, text};
use crate::print::text::counted;
use crate::tell;

/// Sends kept rows again.
pub(crate) async fn redispatch<D: Database>(
    operator: &Operator<D>,
    flags: &RedispatchFlags,
    as_json: bool,
) -> Result<String, Failed> {
    let given = flags.from.is_some() || flags.before.is_some();
    if !(given || flags.message_type.is_some() || flags.key.is_some() || flags.all) {
        return Err(Failed::Usage(
            "which rows? Give --from, --before, --type, --key, or --all".to_owned(),
        ));
    }
    let mut session = operator.store().begin_read().await?;
    let now = operator.store().now(&mut session).await?;
    session.commit().await?;
    let selection = RedispatchSelection {
        from: flags.from.map(|from| from.seen_from(now)),
        before: flags.before.map(|before| before.seen_from(now)),
        message_type: flags.message_type.clone(),
        key: flags.key.clone(),
    };
    let mut redispatch = operator.redispatch(&selection, &flags.deed.reason).await?;
    let preview = redispatch.preview().await?;
    if preview.rows == 0 {
        return Err(Failed::Nothing("no kept row is in the selection"));
    }
    let cut_off = redispatch.cut_off();
    let plan = match as_json {
        true => {
            let mut value = json::preview(&preview);
            value["dispatched_before"] = rfc3339(cut_off).into();
            json::line(&json!({"dry_run": value}))
        }
        false => {
            let mut plan = format!(
                "{} of {}, dispatched before {}, would go out again\n",
                counted(preview.rows, "row"),
                counted(preview.keys, "key"),
                seconds(cut_off)
            );
            if !preview.lacking.is_empty() {
                let rows: Vec<Vec<String>> = preview
                    .lacking
                    .iter()
                    .map(|(consumer, rows)| vec![consumer.clone(), rows.to_string()])
                    .collect();
                let columns = [text("consumer", 12), number("has not handled")];
                plan = format!("{plan}\n{}", table(&columns, &rows));
            }
            plan
        }
    };
    if !confirmed(&flags.deed, as_json, &plan).await? {
        return Ok(String::new());
    }
    let watched = !as_json && std::io::stderr().is_terminal();
    let mut broken_off = BrokenOff {
        // Times that are so long ago would be others by then.
        from: redispatch.begins_at().map(rfc3339),
        before: rfc3339(cut_off),
        // Over the progress, which has no end of line.
        start: if watched { "\r" } else { "" },
        took_place: false,
    };
    let rows = redispatch
        .finish(|rows| {
            if watched {
                tell(&format!("\r{rows} of {}", counted(preview.rows, "row")));
            }
        })
        .await;
    if watched {
        tell("\n");
    }
    let rows = rows?;
    broken_off.took_place = true;
    Ok(match as_json {
        true => json::line(&json!({"action": "redispatch", "rows": rows})),
        false => format!("in the outbox again: {}\n", counted(rows, "row")),
    })
}

/// Says how to go on if it does not come to its end, for whatever reason: also a signal.
struct BrokenOff {
    from: Option<String>,
    before: String,
    start: &'static str,
    took_place: bool,
}

impl Drop for BrokenOff {
    fn drop(&mut self) {
        if !self.took_place {
            let Self { before, start, .. } = self;
            let from = self.from.as_ref();
            let from = from.map_or(String::new(), |from| format!("--from {from} "));
            tell(&format!(
                "{start}posta: it broke off; the same command with {from}--before {before} does the rest\n"
            ));
        }
    }
}
