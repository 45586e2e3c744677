use super::dead_letter::DeadLetterTexts;
use super::inbox::InboxTexts;
use super::layout::LayoutTexts;
use super::lease::LeaseTexts;
use super::migration::MigrationTexts;
use super::outbox::{BehindTexts, OutboxTexts};
use super::queue::QueueTexts;
use super::recall::RecallTexts;
use super::record::RecordTexts;
use super::redispatch::RedispatchTexts;
use super::replay::ReplayTexts;
use super::retry::RetryTexts;
use super::scheduled::ScheduleTexts;
use crate::store::Tables;

/// The text of every statement, with the names of one store's tables in it: made once.
#[derive(Debug)]
pub(super) struct Texts {
    pub(super) outbox: OutboxTexts,
    pub(super) outbox_behind: BehindTexts,
    pub(super) queue: QueueTexts,
    pub(super) inbox: InboxTexts,
    pub(super) retry: RetryTexts,
    pub(super) dead_letter: DeadLetterTexts,
    pub(super) scheduled: ScheduleTexts,
    pub(super) replay: ReplayTexts,
    pub(super) redispatch: RedispatchTexts,
    pub(super) recall: RecallTexts,
    pub(super) record: RecordTexts,
    pub(super) layout: LayoutTexts,
    pub(super) lease: LeaseTexts,
    pub(super) migration: MigrationTexts,
}

impl Texts {
    pub(super) fn new(tables: &Tables) -> Self {
        Self {
            outbox: OutboxTexts::new(tables),
            outbox_behind: BehindTexts::new(tables),
            queue: QueueTexts::new(tables),
            inbox: InboxTexts::new(tables),
            retry: RetryTexts::new(tables),
            dead_letter: DeadLetterTexts::new(tables),
            scheduled: ScheduleTexts::new(tables),
            replay: ReplayTexts::new(tables),
            redispatch: RedispatchTexts::new(tables),
            recall: RecallTexts::new(tables),
            record: RecordTexts::new(tables),
            layout: LayoutTexts::new(tables),
            lease: LeaseTexts::new(tables),
            migration: MigrationTexts::new(tables),
        }
    }
}
