use posta::operations::Operator;
use posta::store::{Database, ReplayRun, RunId};
use serde_json::json;

use crate::confirm::confirmed;
use crate::exit::Failed;
use crate::flags::RunFlags;
use crate::moment::{minutes, seconds};
use crate::print::fields::Fields;
use crate::print::json;
use crate::print::table::{number, table, text, whole};

/// What is done to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steer {
    Pause,
    Resume,
    Cancel,
}

/// Lists runs.
pub(crate) async fn list<D: Database>(
    operator: &Operator<D>,
    limit: u16,
    as_json: bool,
) -> Result<String, Failed> {
    let runs = operator.runs(limit.into()).await?;
    if runs.is_empty() {
        return Err(Failed::Nothing("there is no replay run"));
    }
    if as_json {
        return Ok(json::lines(runs.iter().map(json::run)));
    }
    Ok(rows(&runs))
}

/// Runs as a table.
pub(crate) fn rows(runs: &[ReplayRun]) -> String {
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|run| {
            vec![
                run.id.to_string(),
                run.state.as_str().to_owned(),
                run.counts.waiting.to_string(),
                run.counts.replaying.to_string(),
                run.counts.replayed.to_string(),
                run.counts.failed.to_string(),
                run.counts.left.to_string(),
                minutes(run.created_at),
                run.who.clone(),
                run.selection.clone(),
            ]
        })
        .collect();
    let columns = [
        number("run"),
        whole("state"),
        number("waiting"),
        number("on way"),
        number("done"),
        number("failed"),
        number("left"),
        whole("begun"),
        text("who", 5),
        text("selection", 9),
    ];
    table(&columns, &rows)
}

/// Shows one run.
pub(crate) async fn show<D: Database>(
    operator: &Operator<D>,
    run: i64,
    as_json: bool,
) -> Result<String, Failed> {
    let run = operator.run(RunId(run)).await?;
    if as_json {
        return Ok(json::line(&json::run(&run)));
    }
    Ok(text_of(&run))
}

fn text_of(run: &ReplayRun) -> String {
    let mut fields = Fields::default();
    let or_none = |number: Option<u32>, unit: &str| match number {
        Some(number) => format!("{number}{unit}"),
        None => "no limit".to_owned(),
    };
    fields
        .add("run", run.id.to_string())
        .add("state", run.state.as_str())
        .add(
            "letters",
            format!(
                "{} waiting, {} on their way, {} replayed, {} died again, {} left out",
                run.counts.waiting,
                run.counts.replaying,
                run.counts.replayed,
                run.counts.failed,
                run.counts.left
            ),
        )
        .add("selection", &run.selection)
        .add("rate", or_none(run.rate, " letters a second"))
        .add("stops after", or_none(run.failures_max, " that die again"))
        .add(
            "begun",
            format!("{} by {}", seconds(run.created_at), run.who),
        )
        .maybe("ended", run.ended_at.map(seconds))
        .add("reason", &run.reason);
    fields.text().to_owned()
}

/// Pauses, resumes or cancels a run.
pub(crate) async fn steer<D: Database>(
    operator: &Operator<D>,
    steer: Steer,
    flags: &RunFlags,
    as_json: bool,
) -> Result<String, Failed> {
    let id = RunId(flags.run);
    let run = operator.run(id).await?;
    let (verb, done) = match steer {
        Steer::Pause => ("pause", "is paused"),
        Steer::Resume => ("resume", "goes on"),
        Steer::Cancel => ("cancel", "is cancelled"),
    };
    let plan = match as_json {
        true => json::line(&json!({"dry_run": {"action": verb, "run": json::run(&run)}})),
        false => format!("would {verb}:\n{}", text_of(&run)),
    };
    if !confirmed(&flags.deed, as_json, &plan).await? {
        return Ok(String::new());
    }
    let reason = &flags.deed.reason;
    match steer {
        Steer::Pause => operator.pause(id, reason).await?,
        Steer::Resume => operator.resume(id, reason).await?,
        Steer::Cancel => operator.cancel(id, reason).await?,
    }
    let run = operator.run(id).await?;
    Ok(match as_json {
        true => json::line(&json!({"action": verb, "run": json::run(&run)})),
        false => format!("replay run {id} {done}\n"),
    })
}
