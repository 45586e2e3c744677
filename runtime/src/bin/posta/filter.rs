use clap::Args;
use posta::store::{Database, LetterFilter, LetterId, LetterState, Origin, RedispatchStore, Store};

use crate::exit::Failed;
use crate::moment::Moment;

/// Which dead letters; every part that is given must hold.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Which letters")]
pub(crate) struct FilterFlags {
    /// Only of this consumer
    #[arg(long, value_name = "NAME", conflicts_with = "dispatch")]
    consumer: Option<String>,

    /// Only of the way from the outbox to the broker
    #[arg(long)]
    dispatch: bool,

    /// Only of this message type
    #[arg(long = "type", value_name = "TYPE")]
    message_type: Option<String>,

    /// Only of this ordering key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// Only with this message id
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,

    /// Only of this kind of error: failed, panicked, undecodable, ...
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,

    /// Only with exactly this fingerprint, as `groups` shows it
    #[arg(long, value_name = "TEXT")]
    fingerprint: Option<String>,

    /// Only errors that contain this text, as it is written
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,

    /// Only those set aside since this time: 2026-01-31 09:30, or 12h ago
    #[arg(long, value_name = "TIME")]
    from: Option<Moment>,

    /// Only those set aside before this time (UTC), or longer ago
    #[arg(long, value_name = "TIME")]
    before: Option<Moment>,

    /// Only those that their key waits for
    #[arg(long, conflicts_with = "not_parked")]
    parked: bool,

    /// Only those that no key waits for
    #[arg(long)]
    not_parked: bool,
}

impl FilterFlags {
    /// Whether nothing was said.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            consumer,
            dispatch,
            message_type,
            key,
            message_id,
            kind,
            fingerprint,
            error,
            from,
            before,
            parked,
            not_parked,
        } = self;
        let texts = [
            consumer,
            message_type,
            key,
            message_id,
            kind,
            fingerprint,
            error,
        ];
        texts.iter().all(|text| text.is_none())
            && from.is_none()
            && before.is_none()
            && !(*dispatch || *parked || *not_parked)
    }

    /// The filter, its times by the database's clock.
    pub(crate) async fn filter<D: Database>(
        &self,
        store: &D::Store,
        ids: &[i64],
        states: &[LetterState],
    ) -> Result<LetterFilter, Failed> {
        let origin = match (&self.consumer, self.dispatch) {
            (Some(name), _) => Some(Origin::Consumer(name.clone())),
            (None, true) => Some(Origin::Dispatch),
            (None, false) => None,
        };
        let (mut dead_from, mut dead_before) = (None, None);
        if self.from.is_some() || self.before.is_some() {
            let mut session = store.begin_read().await?;
            let now = store.now(&mut session).await?;
            session.commit().await?;
            dead_from = self.from.map(|from| from.seen_from(now));
            dead_before = self.before.map(|before| before.seen_from(now));
        }
        Ok(LetterFilter {
            ids: ids.iter().copied().map(LetterId).collect(),
            origin,
            message_type: self.message_type.clone(),
            key: self.key.clone(),
            message_id: self.message_id.clone(),
            reason: self.kind.clone(),
            fingerprint: self.fingerprint.clone(),
            error_contains: self.error.clone(),
            dead_from,
            dead_before,
            parked: match (self.parked, self.not_parked) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
            states: states.to_vec(),
        })
    }
}
