use std::path::PathBuf;
use std::time::Duration;

use diesel::sql_types::BigInt;

use super::Connection;
use super::classify::not_opened;
use super::connect::open;
use super::connection::on_thread;
use super::statement::Sql;
use crate::store::{StoreError, Tables};

/// Pause after a change: work tends to come in bursts.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Pause when nothing has changed for long.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Sees that anybody else, in this process or another, has committed to the file.
///
/// SQLite has no notifications. `PRAGMA data_version` changes on a connection when another
/// connection has committed; asking reads a counter in shared memory, no page. Asked at first 50
/// times a second, then ever less, down to 5 times. Every commit counts, Posta's own and the
/// application's: what it tells is never more than that looking may be worthwhile.
#[derive(Debug, Default)]
pub(super) struct Watch {
    seen: Option<Seen>,
}

struct Seen {
    connection: Connection,
    version: i64,
}

impl Watch {
    /// Waits for the next change; returns at once when the connection had to be made, since a
    /// change may have gone unseen.
    pub(super) async fn changed(
        &mut self,
        file: PathBuf,
        timeout: Duration,
    ) -> Result<(), StoreError> {
        let Some(seen) = &mut self.seen else {
            let mut connection = open(file, timeout).await.map_err(not_opened)?;
            let version = version(&mut connection).await?;
            self.seen = Some(Seen {
                connection,
                version,
            });
            return Ok(());
        };
        let mut pause = PAUSE_MIN;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 5 / 4).min(PAUSE_MAX);
            match version(&mut seen.connection).await {
                Ok(version) if version == seen.version => {}
                Ok(version) => {
                    seen.version = version;
                    return Ok(());
                }
                Err(error) => {
                    self.seen = None;
                    return Err(error);
                }
            }
        }
    }
}

async fn version(connection: &mut Connection) -> Result<i64, StoreError> {
    on_thread(connection, "watch the database", |connection| {
        Sql::new(&Tables::default(), "PRAGMA data_version")
            .statement()
            .one::<BigInt, i64>(connection)
    })
    .await
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seen")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
