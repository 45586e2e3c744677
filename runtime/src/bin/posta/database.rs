use std::time::Duration;

use posta::Tables;
use posta::store::{Connect, Database, MigrationStore as _, Store as _};

use crate::command;
use crate::exit::Failed;
use crate::flags::{Command, Flags};

/// How long to wait for the database.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Which database a URL names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Postgres,
    Sqlite,
}

/// Runs a command on the database that the flags or the environment name; returns what to print.
pub(crate) async fn run(flags: &Flags) -> Result<String, Failed> {
    let url = flags
        .place
        .database
        .clone()
        .or_else(|| std::env::var("POSTA_DATABASE").ok())
        .filter(|url| !url.is_empty())
        .ok_or_else(|| {
            Failed::Usage("which database? Give --database URL or set POSTA_DATABASE".to_owned())
        })?;
    let tables = Tables::named(flags.place.tables.as_str())
        .map_err(|error| Failed::Usage(format!("--tables: {error}")))?;
    match kind_of(&url)? {
        #[cfg(feature = "postgres")]
        Kind::Postgres => run_on::<posta::Postgres>(flags, &url, tables).await,
        #[cfg(not(feature = "postgres"))]
        Kind::Postgres => Err(built_without("PostgreSQL", "postgres")),
        #[cfg(feature = "sqlite")]
        Kind::Sqlite => {
            // Opening a file makes it; a command that only looks must not.
            let file = file_of(&url);
            if !url.starts_with("sqlite:") && url.contains(['@', '=']) && !file.exists() {
                // Most likely meant for PostgreSQL: nothing is said of it, and no file made of it.
                return Err(Failed::Usage(
                    "the database is no file that is there; a PostgreSQL URL begins with \
                     postgres://, and a new file of such a name with sqlite:"
                        .to_owned(),
                ));
            }
            if !matches!(flags.command, Command::Migrate(_)) && !file.exists() {
                return Err(Failed::NoFile(file.display().to_string()));
            }
            run_on::<posta::Sqlite>(flags, &url, tables).await
        }
        #[cfg(not(feature = "sqlite"))]
        Kind::Sqlite => Err(built_without("SQLite", "sqlite")),
    }
}

#[cfg(not(all(feature = "postgres", feature = "sqlite")))]
fn built_without(database: &str, feature: &str) -> Failed {
    Failed::Usage(format!(
        "this posta was built without {database} (feature `{feature}`)"
    ))
}

/// The database of a URL's scheme. The error names the scheme alone: the rest may hold a password.
fn kind_of(url: &str) -> Result<Kind, Failed> {
    match url.split_once(':') {
        Some(("postgres" | "postgresql", _)) => Ok(Kind::Postgres),
        Some(("sqlite", _)) | None => Ok(Kind::Sqlite),
        Some((scheme, rest)) if rest.starts_with("//") => Err(Failed::Usage(format!(
            "the database's scheme is {scheme:?}; it must be postgres or sqlite"
        ))),
        Some(_) => Ok(Kind::Sqlite),
    }
}

/// The file that a SQLite URL names.
#[cfg(feature = "sqlite")]
fn file_of(url: &str) -> std::path::PathBuf {
    let path = url.strip_prefix("sqlite:").unwrap_or(url);
    path.strip_prefix("//")
        .filter(|_| path.len() != url.len())
        .unwrap_or(path)
        .into()
}

async fn run_on<D: Database>(flags: &Flags, url: &str, tables: Tables) -> Result<String, Failed> {
    let connect = Connect {
        tables,
        connections_max: 2,
        timeout: TIMEOUT,
        transaction_pooler: flags.place.transaction_pooler,
    };
    if let Command::Migrate(migrate) = &flags.command
        && migrate.print
    {
        return Ok(D::migration_sql(&connect.tables));
    }
    let store = D::Store::connect(url, &connect)?;
    if let Command::Migrate(migrate) = &flags.command {
        return command::migrate::<D>(&store, migrate, flags.place.json).await;
    }
    store.check_migrations().await?;
    command::run::<D>(store, flags).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_tells_the_database() {
        for (url, kind) in [
            ("postgres://a:b@c/d", Kind::Postgres),
            ("postgresql://c/d", Kind::Postgres),
            ("sqlite://x.db", Kind::Sqlite),
            ("sqlite:x.db", Kind::Sqlite),
            ("/tmp/x.db", Kind::Sqlite),
            ("odd:name.db", Kind::Sqlite),
        ] {
            assert_eq!(kind_of(url).unwrap(), kind, "{url}");
        }
        let error = kind_of("mysql://root:secret@c/d").unwrap_err().chain();
        assert!(
            error.contains("mysql") && !error.contains("secret"),
            "{error}"
        );
    }
}
