//! What the tests begin with.

use std::rc::Rc;
use std::time::Duration;

use posta::layout::Generation;
use posta::message::{Envelope, MessageType};
use posta::store::{
    FailedRow, Fence, Grant, InboxStore, LeaseStore, MemberId, MigrationStore, NewHold, OutboxRow,
    OutboxStore, Resource, RetryStore, RowId, Session, Store, StoreError,
};
use posta::{MessageId, OrderingKey, Slot};

use crate::harness::database::TestDatabase;

/// Longer than any test.
pub(super) const LONG: Duration = Duration::from_secs(3600);

/// A database of one test.
pub(super) struct Place<D: TestDatabase> {
    pub(super) home: Rc<D::Home>,
    pub(super) store: D::Store,
}

/// A database with Posta's tables.
pub(super) async fn fresh<D: TestDatabase>() -> Place<D> {
    let place = empty::<D>().await;
    place
        .store
        .migrate()
        .await
        .expect("migrations run on an empty database");
    place
}

/// A database without them.
pub(super) async fn empty<D: TestDatabase>() -> Place<D> {
    let (home, store) = D::empty().await;
    Place {
        home: Rc::new(home),
        store,
    }
}

impl<D: TestDatabase> Place<D> {
    /// A transaction.
    pub(super) async fn begin(&self) -> Session<D> {
        self.store.begin().await.expect("a transaction begins")
    }

    /// What a transaction gives that is committed.
    pub(super) async fn done<T>(
        &self,
        work: impl AsyncFnOnce(&D::Store, &mut Session<D>) -> Result<T, StoreError>,
    ) -> T {
        let mut session = self.begin().await;
        let given = work(&self.store, &mut session)
            .await
            .expect("the store does what it is asked");
        session.commit().await.expect("the transaction commits");
        given
    }

    /// A store as another process has one.
    pub(super) async fn another(&self) -> D::Store {
        D::another(&self.home, self.store.tables().clone()).await
    }

    /// The name of one of Posta's tables.
    pub(super) fn table(&self, noun: &str) -> String {
        D::table(self.store.tables(), noun)
    }

    /// Inserts and commits.
    pub(super) async fn enqueue(&self, envelopes: &[Envelope]) {
        let mut session = self.begin().await;
        D::insert_outbox(&mut session, self.store.tables(), envelopes)
            .await
            .expect("rows go in");
        session.commit().await.expect("the insert commits");
    }

    /// Runs plain SQL and commits.
    pub(super) async fn run(&self, sql: &str) {
        let mut session = self.begin().await;
        D::run(&mut session, sql).await;
        session.commit().await.expect("plain SQL commits");
    }

    /// Reads texts.
    pub(super) async fn texts(&self, sql: &str) -> Vec<Option<String>> {
        let mut session = self.begin().await;
        let texts = D::texts(&mut session, sql).await;
        session.rollback().await;
        texts
    }

    /// How many rows a table of Posta's has.
    pub(super) async fn rows(&self, noun: &str) -> u64 {
        let table = self.table(noun);
        let count = self
            .texts(&format!(
                "SELECT CAST(COUNT(*) AS text) AS value FROM {table}"
            ))
            .await;
        count[0]
            .as_deref()
            .expect("a count")
            .parse()
            .expect("a number")
    }

    /// Everything that is pending in all lanes.
    pub(super) async fn pending(&self) -> Vec<OutboxRow> {
        self.pending_at_most(10_000).await
    }

    /// What is pending in all lanes, up to a limit.
    pub(super) async fn pending_at_most(&self, limit: usize) -> Vec<OutboxRow> {
        let lanes: Vec<Slot> = Slot::all().collect();
        let mut session = self.begin().await;
        let rows = self
            .store
            .pending(&mut session, &lanes, &[], limit)
            .await
            .expect("pending");
        session.commit().await.expect("the reading commits");
        rows
    }

    /// A member who owns every lane.
    pub(super) async fn own_lanes(&self) -> Vec<Fence> {
        self.own(&Resource::Lanes, 64, LONG).await
    }

    /// A member who owns the one partition of a consumer.
    pub(super) async fn own_partition(&self, consumer: &str) -> Fence {
        self.own(
            &Resource::partitions(consumer, Generation::first(4)),
            1,
            LONG,
        )
        .await
        .remove(0)
    }

    /// A new member who owns every lease of a resource, for so long.
    pub(super) async fn own(&self, resource: &Resource, count: u8, ttl: Duration) -> Vec<Fence> {
        let owner = MemberId::random();
        let mut session = self.begin().await;
        self.store
            .join(&mut session, resource, count, owner, ttl)
            .await
            .expect("joins");
        let grants = self
            .store
            .acquire(
                &mut session,
                resource,
                count,
                owner,
                ttl,
                usize::from(count),
            )
            .await
            .expect("acquires");
        session.commit().await.expect("the leases are committed");
        assert_eq!(grants.len(), usize::from(count), "all leases were free");
        grants
            .into_iter()
            .map(|grant| Fence {
                resource: resource.clone(),
                owner,
                grant,
            })
            .collect()
    }

    /// Fences like a valid one that are not valid: each with what is wrong with it.
    pub(super) async fn bad_fences(&self, good: &Fence) -> Vec<(&'static str, Fence)> {
        let other = Resource::partitions("somebody-else", Generation::first(4));
        let others = self.own(&other, good.grant.number + 1, LONG).await;
        let epoch = |epoch| Fence {
            grant: Grant {
                epoch,
                ..good.grant
            },
            ..good.clone()
        };
        vec![
            ("of an earlier epoch", epoch(good.grant.epoch - 1)),
            ("of a later epoch", epoch(good.grant.epoch + 1)),
            (
                "of a foreign owner",
                Fence {
                    owner: MemberId::random(),
                    ..good.clone()
                },
            ),
            (
                "of another resource",
                others.last().expect("it has leases").clone(),
            ),
            (
                "of a lease that there is not",
                Fence {
                    grant: Grant {
                        number: 200,
                        ..good.grant
                    },
                    ..good.clone()
                },
            ),
        ]
    }

    /// A new member who takes one lease whose time is over.
    pub(super) async fn own_expired(&self, resource: &Resource, number: u8) -> Fence {
        let owner = MemberId::random();
        let mut session = self.begin().await;
        let grants = self
            .store
            .acquire(&mut session, resource, number + 1, owner, LONG, 64)
            .await
            .unwrap();
        session.commit().await.expect("the lease is committed");
        let grant = *grants
            .iter()
            .find(|grant| grant.number == number)
            .expect("it was free");
        Fence {
            resource: resource.clone(),
            owner,
            grant,
        }
    }

    /// Lets a lease's time be over, as the database sees it.
    pub(super) async fn expire(&self, fence: &Fence) {
        let mut session = self.begin().await;
        self.store
            .renew(&mut session, &fence.resource, fence.owner, Duration::ZERO)
            .await
            .expect("renews");
        session.commit().await.expect("the renewal is committed");
    }

    /// Marks rows as dispatched and commits; those that moved.
    pub(super) async fn settle(&self, fences: &[Fence], rows: &[RowId]) -> Vec<RowId> {
        let mut session = self.begin().await;
        let moved = self
            .store
            .mark_dispatched(&mut session, fences, rows)
            .await
            .unwrap();
        session.commit().await.unwrap();
        moved
    }

    /// Marks rows as failed, on hold for so long, and commits; those that changed.
    pub(super) async fn fail(
        &self,
        fences: &[Fence],
        rows: &[RowId],
        hold: Duration,
    ) -> Vec<RowId> {
        let error = "the broker returned it".to_owned();
        let rows: Vec<FailedRow> = rows
            .iter()
            .map(|id| FailedRow {
                id: *id,
                error: error.clone(),
                hold,
            })
            .collect();
        let mut session = self.begin().await;
        let changed = self
            .store
            .mark_failed(&mut session, fences, &rows)
            .await
            .unwrap();
        session.commit().await.unwrap();
        changed
    }

    /// Puts messages into a consumer's retry table and commits.
    pub(super) async fn hold(&self, consumer: &str, holds: &[NewHold]) {
        let mut session = self.begin().await;
        self.store
            .hold(&mut session, consumer, holds)
            .await
            .expect("holds");
        session.commit().await.expect("the hold is committed");
    }

    /// Admits ids as a consumer and commits.
    pub(super) async fn admit(
        &self,
        consumer: &str,
        fence: &Fence,
        ids: &[MessageId],
        keys: &[OrderingKey],
    ) -> posta::store::Admission {
        let mut session = self.begin().await;
        let admission = self
            .store
            .admit(&mut session, consumer, fence, ids, keys)
            .await
            .expect("admits");
        session.commit().await.expect("the admission is committed");
        admission
    }
}

/// A message with a key.
pub(super) fn keyed(key: &str, payload: &[u8]) -> Envelope {
    let mut envelope = keyless(payload);
    envelope.key = Some(key_of(key));
    envelope
}

/// A message without a key.
pub(super) fn keyless(payload: &[u8]) -> Envelope {
    Envelope::builder(type_of("order.placed"), payload.to_vec())
        .build()
        .expect("a valid envelope")
}

pub(super) fn key_of(key: &str) -> OrderingKey {
    OrderingKey::new(key).expect("a valid key")
}

pub(super) fn type_of(name: &str) -> MessageType {
    MessageType::new(name.to_owned()).expect("a valid type")
}

/// A failed message that may be tried again after `delay`.
pub(super) fn failed(envelope: &Envelope, delay: Duration) -> NewHold {
    NewHold {
        envelope: envelope.clone(),
        slot: envelope.slot(),
        attempts: 1,
        error: Some("the handler failed".to_owned()),
        delay: Some(delay),
        parked: None,
    }
}

/// A message that waits behind its key's head.
pub(super) fn successor(envelope: &Envelope) -> NewHold {
    NewHold {
        envelope: envelope.clone(),
        slot: envelope.slot(),
        attempts: 0,
        error: None,
        delay: None,
        parked: None,
    }
}

/// The rows' ids.
pub(super) fn ids(rows: &[OutboxRow]) -> Vec<RowId> {
    rows.iter().map(|row| row.id).collect()
}

/// The rows' messages; all are well-formed.
pub(super) fn messages(rows: &[OutboxRow]) -> Vec<Envelope> {
    rows.iter()
        .map(|row| row.message.clone().expect("a well-formed row"))
        .collect()
}

/// The rows' payloads, as text.
pub(super) fn payloads(rows: &[OutboxRow]) -> Vec<String> {
    messages(rows).iter().map(text_of).collect()
}

/// A message's payload, as text.
pub(super) fn text_of(envelope: &Envelope) -> String {
    String::from_utf8(envelope.payload.to_vec()).expect("a text payload")
}

/// The same message as the database gives it: without regard to the time that it was given.
pub(super) fn without_time(mut envelope: Envelope) -> Envelope {
    envelope.enqueued_at = None;
    envelope
}

/// Texts that databases have been seen to spoil.
pub(super) const ODD_TEXTS: [&str; 9] = [
    "emoji 👩‍👩‍👧‍👦 and 𝄞",
    "right to left: שלום עליכם مرحبا \u{202e}gnirts",
    "escaped NUL: \\u0000 and lone surrogate: \\ud800",
    "quotes ' '' \" ` and $1 ? :name %s {posta} {now}",
    "backslashes \\ \\\\ \\n \\x00 E'\\'",
    "controls \u{1}\u{7f}\u{85}\t\r\n",
    "not normalised: e\u{301} and é, \u{feff}, \u{fffd}, \u{10ffff}",
    "  blanks at both ends  ",
    "null",
];

/// Payloads that databases have been seen to spoil.
pub(super) fn odd_payloads() -> Vec<Vec<u8>> {
    let mut payloads: Vec<Vec<u8>> = ODD_TEXTS
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect();
    payloads.extend([
        Vec::new(),
        (0..=255).collect(),
        b"a\0b".to_vec(),
        vec![0],
        b"{\"a\":\"\\ud800\"}".to_vec(),
        b"\xed\xa0\x80 a lone surrogate in UTF-8".to_vec(),
        b"\xff\xfe\x00\xd8".to_vec(),
        (0..1024 * 1024)
            .map(|index: u32| (index.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect(),
    ]);
    payloads
}

/// Error texts, and what is stored of each.
pub(super) fn odd_errors() -> Vec<(String, String)> {
    let mut errors: Vec<(String, String)> = ODD_TEXTS
        .iter()
        .map(|text| ((*text).to_owned(), (*text).to_owned()))
        .collect();
    errors.push(("a\0b\0".to_owned(), "a\u{fffd}b\u{fffd}".to_owned()));
    errors.push(("x".repeat(100_000), "x".repeat(8192)));
    // 8191 bytes are the last that end between two characters.
    errors.push((
        format!("x{}", "é".repeat(50_000)),
        format!("x{}", "é".repeat(4095)),
    ));
    errors.push((String::new(), String::new()));
    errors
}

/// The ids of the rows with these payloads.
pub(super) fn named(rows: &[posta::store::OutboxRow], payloads: &[&str]) -> Vec<RowId> {
    let chosen = rows.iter().filter(|row| {
        let payload = &row.message.as_ref().unwrap().payload;
        payloads.iter().any(|wanted| payload == wanted.as_bytes())
    });
    chosen.map(|row| row.id).collect()
}
