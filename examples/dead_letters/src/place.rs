use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// The file that the story makes anew each time it is told, unless another database is named.
pub(crate) const FILE: &str = "dead_letters.db";

/// Where the bank lives.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// `sqlite://FILE` or `postgres://…`.
    pub(crate) database: String,
    /// `database`, `amqp://…` or `amqps://…`.
    pub(crate) broker: String,
}

impl Place {
    /// Whether its database is a PostgreSQL.
    pub(crate) fn is_postgres(&self) -> bool {
        self.database.starts_with("postgres://") || self.database.starts_with("postgresql://")
    }

    /// The database as `posta --database` takes it; without one that may hold a password.
    pub(crate) fn in_words(&self) -> &str {
        match self.is_postgres() {
            true => "$POSTA_DATABASE",
            false => &self.database,
        }
    }
}

/// Removes the story's file of an earlier telling, if it is one.
pub(crate) fn remove_earlier() -> anyhow::Result<()> {
    let file = Path::new(FILE);
    if !file.exists() {
        return Ok(());
    }
    let mut beginning = [0; 15];
    let mut opened = std::fs::File::open(file).with_context(|| format!("cannot open {FILE}"))?;
    let read = std::io::Read::read_exact(&mut opened, &mut beginning);
    ensure!(
        read.is_ok() && &beginning == b"SQLite format 3",
        "{FILE} is there, and no SQLite database: it is left alone"
    );
    for ending in ["", "-wal", "-shm"] {
        let file = PathBuf::from(format!("{FILE}{ending}"));
        if file.exists() {
            std::fs::remove_file(&file)
                .with_context(|| format!("cannot remove {}", file.display()))?;
        }
    }
    Ok(())
}
