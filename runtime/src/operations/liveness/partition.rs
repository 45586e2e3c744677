use std::fmt::Display;
use std::time::Duration;

use super::Finding;
use crate::broker::{BrokerDriver, PartitionQueue};
use crate::store::Database;
use crate::supervision::{Doing, Progress, error_chain};

/// Looks at a partition's actor that has its lease; `at_work_for` is how long it has been working
/// without a step.
pub(super) async fn look<D: Database>(
    driver: &dyn BrokerDriver<D>,
    queue: &PartitionQueue,
    progress: &Progress,
    at_work_for: Option<Duration>,
    patience: Duration,
) -> Finding {
    match progress.doing() {
        Doing::Nothing => return Finding::Explained,
        Doing::Working => return Finding::of_work(at_work_for, patience),
        Doing::Waiting => {}
    }
    match driver.queue_depth(queue).await {
        Ok(None) => Finding::Explained,
        Ok(Some(depth)) if depth.consumers == Some(0) => Finding::Different(
            "it waits for deliveries, and the broker knows of no subscription".to_owned(),
        ),
        Ok(Some(depth)) if depth.ready > 0 => Finding::Different(
            "it waits for deliveries, messages are ready, and none comes".to_owned(),
        ),
        Ok(Some(depth)) => Finding::Well(match depth.consumers {
            Some(consumers) => format!("nothing is ready for its {consumers} subscriptions"),
            None => "nothing is ready".to_owned(),
        }),
        Err(error) => without_answer(&error_chain(&error)),
    }
}

/// It waits over a connection that does not answer, and has not noticed.
pub(super) fn without_answer(why: &dyn Display) -> Finding {
    Finding::Different(format!(
        "it waits for deliveries, and the broker does not answer: {why}"
    ))
}
