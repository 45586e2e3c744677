use diesel::prelude::*;
use diesel_async::{RunQueryDsl, SimpleAsyncConnection};

use super::super::SCHEMA;
use super::super::service::documents;
use super::Job;
use crate::error::JobError;
use crate::flags::Flags;

diesel::table! {
    run (id) {
        id -> BigInt,
        documents -> BigInt,
        keys -> BigInt,
        duplicates -> BigInt,
        seed -> BigInt,
        kills -> BigInt,
        finished -> BigInt,
    }
}
diesel::table! {
    run_copies (request_id) {
        request_id -> BigInt,
        message_id -> Text,
        enqueued -> BigInt,
    }
}
diesel::table! {
    run_lines (document_id, round) {
        document_id -> BigInt,
        round -> BigInt,
        notified -> BigInt,
        mailed -> BigInt,
    }
}
diesel::allow_tables_to_appear_in_same_query!(run_lines, documents);

/// Numbers of one run share these bits; the seed stands above them, so that the numbers of two runs
/// are never the same.
const NUMBER_BITS: u32 = 32;

/// Seeds have this many bits: a number with its seed is exact in any JSON reader, too (53 bits).
const SEED_BITS: u32 = 20;

/// What a run is to do, as its first process wrote it down.
#[derive(Clone, Debug, Default, Queryable)]
pub(super) struct Run {
    _id: i64,
    /// How many signatures.
    pub(super) documents: i64,
    /// On how many documents.
    pub(super) keys: i64,
    /// How many percent of the messages are enqueued twice.
    pub(super) duplicates: i64,
    /// What the choice of documents follows from.
    pub(super) seed: i64,
    _kills: i64,
    /// The number of documents for which the run has come to its end before; 0 if it never has.
    finished: i64,
}

impl Run {
    /// Whether all of it is done.
    pub(super) fn is_finished(&self) -> bool {
        self.finished >= self.documents
    }

    /// The id of the `n`-th signature request, from 1.
    pub(super) fn request(&self, n: i64) -> i64 {
        (self.seed << NUMBER_BITS) + n
    }

    /// The id of a request that is signed and then rolled back.
    pub(super) fn withdrawn(&self, n: i64) -> i64 {
        self.request(n) + (1 << (NUMBER_BITS - 1))
    }

    /// The ids that can occur in this run.
    pub(super) fn ids(&self) -> (i64, i64) {
        (self.request(0), self.request(0) + (1 << NUMBER_BITS) - 1)
    }

    /// Which document the `n`-th request is about.
    pub(super) fn document(&self, n: i64) -> i64 {
        // SplitMix64: the same for the same seed, and spread evenly.
        let mut x = (self.seed as u64 ^ n as u64)
            .wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(n as u64));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.request(1 + ((x ^ (x >> 31)) % self.keys as u64) as i64)
    }

    /// Whether the `n`-th request's message is enqueued twice: evenly spread, exactly so many
    /// percent in all.
    pub(super) fn has_copy(&self, n: i64) -> bool {
        n * self.duplicates / 100 > (n - 1) * self.duplicates / 100
    }
}

impl Job {
    /// Creates the service's and the run's tables, if they are not there.
    pub(super) async fn create_tables(&self) -> Result<(), JobError> {
        self.transaction(async |tx| Ok(tx.batch_execute(SCHEMA).await?))
            .await
    }

    /// Reads what the run is to do, or writes it down.
    pub(super) async fn begin_or_resume(&self, flags: &Flags) -> Result<Run, JobError> {
        let seed = i64::from(rand::random::<u32>() % (1 << SEED_BITS)).max(1);
        self.transaction(async |tx| {
            let known: Option<Run> = run::table.first(tx).await.optional()?;
            let Some(mut known) = known else {
                diesel::insert_into(run::table)
                    .values((
                        run::id.eq(1),
                        run::documents.eq(flags.documents),
                        run::keys.eq(flags.keys),
                        run::duplicates.eq(flags.duplicates),
                        run::seed.eq(seed),
                        run::kills.eq(0),
                        run::finished.eq(0),
                    ))
                    .execute(tx)
                    .await?;
                return Ok(run::table.first(tx).await?);
            };
            let same = [
                ("--keys", known.keys, flags.keys),
                ("--duplicates", known.duplicates, flags.duplicates),
            ];
            if let Some((flag, was, is)) = same.into_iter().find(|(_, was, is)| was != is) {
                return Err(JobError::Usage(format!(
                    "this database holds a run with {flag} {was}, not {is}: \
                     use the same flags to go on, or another database"
                )));
            }
            if flags.documents < known.documents {
                return Err(JobError::Usage(format!(
                    "this database holds a run with --documents {}: it can grow, not shrink to {}",
                    known.documents, flags.documents
                )));
            }
            diesel::update(run::table)
                .set(run::documents.eq(flags.documents))
                .execute(tx)
                .await?;
            known.documents = flags.documents;
            Ok(known)
        })
        .await
    }

    /// Counts a worker that was killed.
    pub(super) async fn count_kill(&self) -> Result<(), JobError> {
        self.transaction(async |tx| {
            diesel::update(run::table)
                .set(run::kills.eq(run::kills + 1))
                .execute(tx)
                .await?;
            Ok(())
        })
        .await
    }

    /// Writes down that all is done.
    pub(super) async fn finish(&self) -> Result<(), JobError> {
        self.transaction(async |tx| {
            diesel::update(run::table)
                .set(run::finished.eq(self.run.documents))
                .execute(tx)
                .await?;
            Ok(())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_exactly_so_many_percent() {
        for duplicates in [0, 1, 5, 33, 99, 100] {
            let run = Run {
                duplicates,
                ..Run::default()
            };
            let copies = (1..=2000).filter(|n| run.has_copy(*n)).count();
            assert_eq!(copies as i64, 2000 * duplicates / 100);
        }
    }

    #[test]
    fn every_document_gets_its_part() {
        let run = Run {
            keys: 10,
            seed: 7,
            ..Run::default()
        };
        let mut counts = std::collections::BTreeMap::new();
        (1..=1000).for_each(|n| *counts.entry(run.document(n)).or_insert(0) += 1);
        assert_eq!(counts.len(), 10);
        assert!(
            counts.values().all(|count| (50..200).contains(count)),
            "{counts:?}"
        );
    }
}
