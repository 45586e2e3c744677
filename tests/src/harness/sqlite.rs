//! SQLite files of one test each.

use std::path::{Path, PathBuf};
use std::time::Duration;

use posta::Tables;
use posta::store::{Connect, MigrationStore, SqliteStore, Store};

/// A directory with one database file; removed when dropped.
pub(crate) struct SqliteFile {
    directory: PathBuf,
}

impl SqliteFile {
    /// A path at which there is no file yet.
    pub(crate) fn absent() -> Self {
        let name = format!("posta-test-{}", uuid::Uuid::now_v7().simple());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("the temporary directory can be written");
        Self { directory }
    }

    /// A file with Posta's tables, and a store on it.
    pub(crate) async fn migrated() -> (Self, SqliteStore) {
        let file = Self::absent();
        let store = file.store();
        store
            .migrate()
            .await
            .expect("migrations run on an empty file");
        (file, store)
    }

    /// The file's path.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("posta.db")
    }

    /// The directory that is removed with it.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The URL by which a store connects to it.
    pub(crate) fn url(&self) -> String {
        format!("sqlite://{}", self.path().display())
    }

    /// Another store on it, with a pool of its own.
    pub(crate) fn store(&self) -> SqliteStore {
        SqliteStore::connect(&self.url(), &connect(Tables::default()))
            .expect("the URL is one of SQLite's")
    }
}

impl Drop for SqliteFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// How tests connect: a timeout that only a hang reaches.
pub(crate) fn connect(tables: Tables) -> Connect {
    Connect {
        tables,
        connections_max: 8,
        timeout: Duration::from_secs(20),
        transaction_pooler: false,
    }
}
