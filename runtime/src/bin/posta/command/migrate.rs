use posta::store::{Database, MigrationStore as _, Store as _, StoreErrorKind};
use serde_json::json;

use crate::confirm::confirmed;
use crate::exit::Failed;
use crate::flags::{Deed, MigrateFlags};
use crate::print::json;

/// Runs the migrations that have not been run.
pub(crate) async fn migrate<D: Database>(
    store: &D::Store,
    flags: &MigrateFlags,
    as_json: bool,
) -> Result<String, Failed> {
    let up_to_date = match store.check_migrations().await {
        Ok(()) => true,
        Err(error) if error.kind() == StoreErrorKind::Schema => false,
        Err(error) => return Err(error.into()),
    };
    if up_to_date {
        return Ok(answer(
            as_json,
            &[],
            "the tables are up to date\n".to_owned(),
        ));
    }
    let place = store.tables().name();
    let plan = match as_json {
        true => json::line(&json!({"up_to_date": false, "tables": place})),
        false => format!(
            "Posta's tables in {place:?} are missing or older than this posta; `--print` shows \
             the statements.\n"
        ),
    };
    // Only people are asked; it has no reason on record, since the table of the record may not be
    // there.
    let deed = Deed {
        reason: String::new(),
        who: None,
        yes: flags.yes,
        dry_run: false,
    };
    if !confirmed(&deed, as_json, &plan).await? {
        return Ok(String::new());
    }
    let applied = store.migrate().await?;
    let names: Vec<String> = applied
        .iter()
        .map(|migration| format!("{} {}", migration.version, migration.name))
        .collect();
    let text = names
        .iter()
        .map(|name| format!("migrated: {name}\n"))
        .collect();
    Ok(answer(as_json, &names, text))
}

fn answer(as_json: bool, applied: &[String], text: String) -> String {
    match as_json {
        true => json::line(&json!({"applied": applied})),
        false => text,
    }
}
