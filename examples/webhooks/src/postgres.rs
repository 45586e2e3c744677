//! The service on PostgreSQL.

/// The one line that differs.
pub type Db = posta::Postgres;

/// The service's own tables.
///
/// The lock is for two processes that start at once: IF NOT EXISTS alone does not keep them apart.
/// The schema is named since PostgreSQL looks into the role's own schema first: for a role called
/// `posta`, Posta's, as soon as it is there. The archive has no unique key on purpose: if anything
/// were handled twice, it would show.
const TABLES: &str = "
    SELECT pg_advisory_xact_lock(hashtext('webhooks.tables'));
    CREATE TABLE IF NOT EXISTS public.deliveries (
        delivery   TEXT PRIMARY KEY,
        event      TEXT NOT NULL,
        repository TEXT
    );
    CREATE TABLE IF NOT EXISTS public.archive (
        delivery   TEXT NOT NULL,
        event      TEXT NOT NULL,
        signature  TEXT NOT NULL,
        body       BYTEA NOT NULL
    );
    CREATE INDEX IF NOT EXISTS archive_delivery ON public.archive (delivery);
    CREATE TABLE IF NOT EXISTS public.statistics (
        repository TEXT PRIMARY KEY,
        deliveries BIGINT NOT NULL,
        last_event TEXT NOT NULL,
        chain      BYTEA NOT NULL
    );
";

#[path = "service/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "one source for both databases")]
mod service;

pub use service::*;
