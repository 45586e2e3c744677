use std::future::Future;

use super::{Store, StoreError};

/// A migration that has been run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedMigration {
    /// Its number, from 1, without gaps.
    pub version: u32,
    /// What it does, in a few words.
    pub name: String,
}

/// Posta's migrations, recorded in a table of Posta's own (`migration`) beside the application's.
pub trait MigrationStore {
    /// Runs the migrations that have not been run yet, in one transaction of its own, guarded
    /// against other processes that do the same; returns those it ran. The only place where DDL
    /// runs.
    fn migrate(&self) -> impl Future<Output = Result<Vec<AppliedMigration>, StoreError>> + Send
    where
        Self: Store;

    /// Checks that the tables are those that this code knows; runs no DDL.
    ///
    /// # Errors
    /// `Schema` when migrations are missing; newer ones than this code knows are fine (migrations
    /// stay compatible with the code of the version before).
    fn check_migrations(&self) -> impl Future<Output = Result<(), StoreError>> + Send
    where
        Self: Store;
}
