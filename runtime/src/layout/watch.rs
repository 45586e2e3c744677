use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::store::{Generation, Layout, LayoutStep};
use crate::supervision::{Wake, WakeListener};

/// One consumer's layout as this process knows it: the keeper and whoever takes a step write it, all
/// others go by it.
///
/// It may be older than the database's. What depends on it is fenced there, or harmless when it is
/// late; the essay says which.
#[derive(Clone)]
pub(crate) struct LayoutWatch {
    consumer: Arc<str>,
    layout: watch::Sender<Option<Layout>>,
    /// The epoch for which this process last saw to the broker's queues.
    provided: Arc<AtomicI64>,
    /// Called when the database is to hear of it, or the layout is to be looked at again, soon.
    news: Wake,
}

impl LayoutWatch {
    pub(crate) fn new(consumer: &str) -> Self {
        Self {
            consumer: consumer.into(),
            layout: watch::Sender::new(None),
            provided: Arc::default(),
            news: Wake::new(),
        }
    }

    /// The layout; `None` until the database was reached.
    pub(crate) fn current(&self) -> Option<Layout> {
        self.layout.borrow().clone()
    }

    /// Waits so long, at most, until the layout is known.
    pub(crate) async fn known(&self, patience: Duration) -> Option<Layout> {
        let mut layout = self.layout.subscribe();
        let known = layout.wait_for(Option::is_some);
        match tokio::time::timeout(patience, known).await {
            Ok(Ok(layout)) => layout.clone(),
            _ => None,
        }
    }

    /// A receiver that sees each change.
    pub(crate) fn changes(&self) -> watch::Receiver<Option<Layout>> {
        self.layout.subscribe()
    }

    /// Takes over what was read from the database, unless something newer is known.
    pub(crate) fn set(&self, mut read: Layout) {
        self.layout.send_if_modified(|known| {
            if let Some(known) = known {
                if known.epoch > read.epoch {
                    return false;
                }
                if known.epoch == read.epoch {
                    keep_drained(known, &mut read);
                }
                if *known == read {
                    return false;
                }
            }
            tell(&self.consumer, known.as_ref(), &read);
            *known = Some(read);
            true
        });
    }

    /// Says that this process has seen to the broker's queues for this epoch.
    pub(crate) fn provide(&self, epoch: i64) {
        if self.provided.fetch_max(epoch, Ordering::SeqCst) < epoch {
            self.news.call();
        }
    }

    /// The last such epoch.
    pub(crate) fn provided(&self) -> i64 {
        self.provided.load(Ordering::SeqCst)
    }

    /// Has the keeper look at once.
    pub(crate) fn look(&self) {
        self.news.call();
    }

    /// A listener that hears when the keeper is to look.
    pub(crate) fn news(&self) -> WakeListener {
        self.news.listen()
    }

    /// Whether a partition of this layout is to be emptied, and whether it was already; `None` if it
    /// is not to be.
    pub(crate) fn drained(&self, generation: Generation, number: u8) -> Option<bool> {
        match &*self.layout.borrow() {
            Some(Layout {
                generation: in_use,
                step: LayoutStep::Draining { drained, .. },
                ..
            }) if *in_use == generation => Some(drained >> number & 1 == 1),
            _ => None,
        }
    }
}

/// Partitions that are known to be drained stay so, whichever reading comes last.
fn keep_drained(known: &Layout, read: &mut Layout) {
    if let (
        LayoutStep::Draining {
            drained: before, ..
        },
        LayoutStep::Draining { drained, .. },
    ) = (known.step, &mut read.step)
    {
        *drained |= before;
    }
}

/// Says what is new: once, however often it is read.
fn tell(consumer: &str, known: Option<&Layout>, read: &Layout) {
    let stage = |layout: &Layout| (layout.generation, layout.step.as_str());
    if known.map(stage) != Some(stage(read)) {
        tracing::info!(
            consumer,
            layout = read.generation.number,
            partitions = read.generation.partitions,
            step = read.step.as_str(),
            next = read.next().map(|next| next.partitions),
            "a consumer's layout"
        );
    }
    let wishes = read.other_wishes();
    let differ = read
        .wishes
        .windows(2)
        .any(|two| two[0].partitions != two[1].partitions);
    if differ && !wishes.is_empty() && known.map(Layout::other_wishes).as_ref() != Some(&wishes) {
        tracing::info!(
            consumer,
            partitions = read.generation.partitions,
            wished = %wishes.join(", "),
            "processes wish another number of partitions; it changes when all do"
        );
    }
}

impl Layout {
    /// What processes wish that is not in use: `8 by 2 of 3`, one for each number.
    #[must_use]
    pub fn other_wishes(&self) -> Vec<String> {
        let mut numbers: Vec<u8> = self.wishes.iter().map(|wish| wish.partitions).collect();
        numbers.sort_unstable();
        numbers
            .chunk_by(|a, b| a == b)
            .filter(|same| same[0] != self.generation.partitions)
            .map(|same| format!("{} by {} of {}", same[0], same.len(), numbers.len()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{MemberId, Wish};

    fn layout(epoch: i64, drained: u64) -> Layout {
        Layout {
            generation: Generation::first(4),
            step: LayoutStep::Draining { next: 8, drained },
            epoch,
            wishes: Vec::new(),
        }
    }

    #[test]
    fn what_was_read_before_does_not_take_back_what_is_known_since() {
        let watch = LayoutWatch::new("c");
        let first = Generation::first(4);
        assert_eq!(watch.drained(first, 1), None);
        watch.set(layout(5, 0b10));
        assert_eq!(watch.drained(first, 1), Some(true));
        watch.set(layout(5, 0b01));
        watch.set(layout(4, 0));
        assert_eq!(
            (watch.drained(first, 0), watch.drained(first, 1)),
            (Some(true), Some(true))
        );
        assert_eq!(watch.drained(first, 2), Some(false));
        assert_eq!(watch.drained(Generation::first(3), 0), None);
        watch.set(layout(6, 0));
        assert_eq!(watch.drained(first, 1), Some(false));
    }

    #[test]
    fn wishes_that_differ_are_counted() {
        let wish = |partitions| Wish {
            member: MemberId::random(),
            partitions,
            epoch: 0,
        };
        let mut layout = layout(1, 0);
        layout.wishes = vec![wish(8), wish(4), wish(8), wish(3)];
        assert_eq!(layout.other_wishes(), ["3 by 1 of 4", "8 by 2 of 4"]);
        layout.wishes = vec![wish(4)];
        assert!(layout.other_wishes().is_empty());
    }
}
