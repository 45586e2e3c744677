use super::operator::{Deed, check_reason};
use super::{Operator, OperatorError};
use crate::store::{Database, Layout, LayoutStep, LayoutStore};

impl<D: Database> Operator<D> {
    /// Says that the bindings of a consumer's queues have been moved from the layout in use to the
    /// one that is to come: for brokers whose queues an operator provides. The consumer's processes
    /// then empty the former queues and go over to the new ones. Returns the layout as it is then.
    ///
    /// # Errors
    /// When the consumer's layout does not wait for it, is just being changed, or the database does
    /// not answer.
    pub async fn layout_bound(
        &self,
        consumer: &str,
        reason: &str,
    ) -> Result<Layout, OperatorError> {
        check_reason(reason)?;
        let wrong = |problem: String| OperatorError::argument("consumer", problem);
        self.transact(async |connection| {
            let store = &self.store;
            if store.layout(connection, consumer).await?.is_none() {
                return Err(wrong(format!("{consumer:?} has no layout: it never ran")));
            }
            let Some(mut layout) = store.lock_layout(connection, consumer).await? else {
                return Err(wrong(
                    "its processes are at the layout; try again".to_owned(),
                ));
            };
            let LayoutStep::Binding { next } = layout.step else {
                return Err(wrong(format!(
                    "its layout is in the step {:?}, and only in \"binding\" are bindings moved",
                    layout.step.as_str()
                )));
            };
            layout.step = LayoutStep::Draining { next, drained: 0 };
            layout.epoch = store
                .set_layout(connection, consumer, layout.generation, layout.step)
                .await?;
            let (from, to) = (layout.generation, next);
            let deed = Deed {
                action: "layout-bound",
                reason,
                letter: None,
                run: None,
                details: format!("{consumer}: {} partitions to {to}", from.partitions),
            };
            self.write_down(connection, deed).await?;
            Ok(layout)
        })
        .await
    }
}
