use posta::layout::{Layout, LayoutStep};
use posta::operations::Operator;
use posta::store::Database;
use serde_json::json;

use crate::confirm::confirmed;
use crate::exit::Failed;
use crate::flags::LayoutFlags;
use crate::print::json;
use crate::print::text::printable;

/// Says that bindings were moved by hand.
pub(crate) async fn bound<D: Database>(
    operator: &Operator<D>,
    flags: &LayoutFlags,
    as_json: bool,
) -> Result<String, Failed> {
    let consumer = &flags.consumer;
    let plan = match as_json {
        true => json::line(&json!({"dry_run": {"action": "layout-bound", "consumer": consumer}})),
        false => format!(
            "would say that the bindings of {} have been moved to its next layout\n",
            printable(consumer)
        ),
    };
    if !confirmed(&flags.deed, as_json, &plan).await? {
        return Ok(String::new());
    }
    let layout = operator.layout_bound(consumer, &flags.deed.reason).await?;
    Ok(match as_json {
        true => json::line(&json!({"action": "layout-bound", "layout": json::layout(&layout)})),
        false => format!("{}: {}\n", printable(consumer), in_words(&layout)),
    })
}

/// A layout on one line, without its wishes.
pub(crate) fn in_words(layout: &Layout) -> String {
    let partitions = layout.generation.partitions;
    match (layout.step, layout.next()) {
        (LayoutStep::Draining { drained, .. }, Some(next)) => format!(
            "{partitions}, draining for {} ({} drained)",
            next.partitions,
            drained.count_ones()
        ),
        (step, Some(next)) => format!("{partitions}, {} for {}", step.as_str(), next.partitions),
        (LayoutStep::Clearing { former }, None) => format!("{partitions}, clearing after {former}"),
        (_, None) => partitions.to_string(),
    }
}
